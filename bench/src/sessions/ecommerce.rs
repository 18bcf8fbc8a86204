//! The parameters of a shop: pages, probabilities, embedded files, pictures of products.

use super::model::{Embedded, Items, Limits, Scenario, State, Think, file, page};
use std::time::Duration;

pub(crate) const ECOMMERCE: Scenario = Scenario {
    head: include_str!("../../sites/ecommerce/head.php"),
    foot: include_str!("../../sites/ecommerce/foot.html"),
    states: STATES,
    files: FILES,
    items: Items {
        chosen_at: 4,
        each: 10,
        files: &[&pictures(3_521, 1_586), &pictures(6_710, 3_590), &pictures(5_327, 3_911)],
        choose: |random, groups| random.usize(..10 * groups),
    },
    limits: Limits { good: Duration::from_secs(3), tolerable: Duration::from_secs(5) },
    think: Think { mean: Duration::from_secs(10), longest: Duration::from_secs(150) },
};

/// Sizes of the pictures of ten products.
const fn pictures(first: usize, step: usize) -> [usize; 10] {
    let mut sizes = [first; 10];
    let mut at = 0;
    while at < sizes.len() {
        sizes[at] += step * at;
        at += 1;
    }
    sizes
}

/// The published chain, but for the rows of `customize1`, `cart`, `login` and `billing`: the
/// published rows do not give the published shares, and these do.
const STATES: &[State] = &[
    page("index", 54_000, 1, &INDEX, &[(0, 0.2), (1, 0.15), (2, 0.6)]),
    page("search", 167_000, 1, &SEARCH, &[(0, 0.05), (1, 0.7), (2, 0.2)]),
    page("browse", 68_000, 1, &BROWSE, &[(0, 0.1), (2, 0.1), (3, 0.75)]),
    page("browse_productline", 108_000, 1, &PRODUCT_LINE, &[(0, 0.05), (2, 0.1), (4, 0.8)]),
    State {
        pictures: &[0, 1, 2],
        ..page("productdetail", 22_000, 1, &PRODUCT, &[(0, 0.05), (2, 0.05), (3, 0.15), (5, 0.7)])
    },
    customize("customize1", &[(5, 0.6157), (6, 0.3343)]),
    customize("customize2", &[(5, 0.1), (6, 0.3), (7, 0.55)]),
    customize("customize3", &[(6, 0.1), (7, 0.2), (8, 0.65)]),
    page("cart", 112_000, 1, &CART, &[(8, 0.25), (9, 0.7132)]),
    page("login", 45_000, 0, &LOGIN, &[(10, 0.9404)]),
    page("shipping", 17_000, 1, &SHIPPING, &[(11, 0.95)]),
    page("billing", 33_000, 1, &BILLING, &[(12, 0.7513)]),
    page("confirm", 23_000, 2, &CONFIRM, &[]),
];

/// A page that shows the small picture of the product. The parameters do not say which pages show
/// pictures; these and all pictures on the product's page give the published averages.
const fn customize(name: &'static str, next: &'static [(usize, f64)]) -> State {
    State { pictures: &[0], ..page(name, 154_000, 1, &CUSTOMIZE, next) }
}

/// Consecutive files.
const fn range<const N: usize>(first: u8) -> [u8; N] {
    let mut indices = [first; N];
    let mut at = 1;
    while at < N {
        indices[at] = indices[at - 1] + 1;
        at += 1;
    }
    indices
}

const INDEX: [u8; 25] = range(0);
const SEARCH: [u8; 7] = range(25);
const BROWSE: [u8; 25] = range(32);
const PRODUCT_LINE: [u8; 12] = range(57);
const PRODUCT: [u8; 10] = range(69);
const CUSTOMIZE: [u8; 9] = range(79);
const CART: [u8; 40] = range(88);
const LOGIN: [u8; 21] = range(128);
const SHIPPING: [u8; 5] = range(149);
const BILLING: [u8; 5] = range(154);
const CONFIRM: [u8; 13] = range(159);

const FILES: &[Embedded] = &[
    file(43, 0.3),
    file(48, 0.3),
    file(54, 0.3),
    file(78, 0.3),
    file(82, 0.2),
    file(147, 0.3),
    file(166, 0.3),
    file(167, 0.3),
    file(173, 0.3),
    file(187, 0.3),
    file(592, 0.3),
    file(616, 0.3),
    file(738, 0.3),
    file(1_022, 0.3),
    file(1_186, 0.3),
    file(1_259, 0.3),
    file(1_360, 0.3),
    file(1_550, 0.3),
    file(1_593, 0.3),
    file(1_761, 0.3),
    file(1_809, 0.3),
    file(18_346, 0.2),
    file(19_207, 0.2),
    file(21_838, 0.2),
    file(22_612, 0.2),
    file(43, 0.3),
    file(67, 0.3),
    file(185, 0.3),
    file(205, 0.3),
    file(370, 0.3),
    file(523, 0.3),
    file(1_731, 0.3),
    file(443, 0.3),
    file(59, 0.3),
    file(62, 0.3),
    file(63, 0.3),
    file(71, 0.3),
    file(132, 0.3),
    file(175, 0.3),
    file(224, 0.3),
    file(243, 0.3),
    file(523, 0.3),
    file(917, 0.3),
    file(1_167, 0.3),
    file(1_347, 0.3),
    file(1_402, 0.3),
    file(1_480, 0.3),
    file(1_504, 0.3),
    file(1_621, 0.3),
    file(1_738, 0.3),
    file(2_208, 0.2),
    file(11_918, 0.2),
    file(11_972, 0.2),
    file(14_408, 0.2),
    file(14_525, 0.2),
    file(14_748, 0.2),
    file(15_750, 0.2),
    file(49, 0.3),
    file(72, 0.3),
    file(185, 0.3),
    file(1_423, 0.3),
    file(2_176, 0.3),
    file(3_140, 0.1),
    file(6_828, 0.1),
    file(8_210, 0.1),
    file(9_461, 0.1),
    file(10_633, 0.1),
    file(10_774, 0.1),
    file(11_044, 0.1),
    file(43, 0.3),
    file(58, 0.3),
    file(71, 0.3),
    file(49, 0.3),
    file(121, 0.3),
    file(132, 0.3),
    file(187, 0.3),
    file(187, 0.3),
    file(2_154, 0.1),
    file(3_521, 0.1),
    file(43, 0.3),
    file(43, 0.3),
    file(49, 0.3),
    file(95, 0.3),
    file(114, 0.3),
    file(370, 0.3),
    file(1_373, 0.1),
    file(1_936, 0.1),
    file(1_994, 0.1),
    file(43, 0.0),
    file(43, 0.0),
    file(43, 0.0),
    file(44, 0.0),
    file(44, 0.0),
    file(48, 0.0),
    file(50, 0.0),
    file(57, 0.0),
    file(61, 0.0),
    file(65, 0.0),
    file(82, 0.0),
    file(83, 0.0),
    file(91, 0.0),
    file(97, 0.0),
    file(98, 0.0),
    file(130, 0.0),
    file(136, 0.0),
    file(223, 0.0),
    file(243, 0.0),
    file(251, 0.0),
    file(274, 0.0),
    file(278, 0.0),
    file(280, 0.0),
    file(283, 0.0),
    file(319, 0.0),
    file(329, 0.0),
    file(362, 0.0),
    file(363, 0.0),
    file(385, 0.0),
    file(523, 0.0),
    file(621, 0.0),
    file(1_848, 0.0),
    file(1_980, 0.0),
    file(7_894, 0.0),
    file(8_240, 0.0),
    file(8_255, 0.0),
    file(8_484, 0.0),
    file(8_886, 0.0),
    file(8_914, 0.0),
    file(43, 0.0),
    file(43, 0.0),
    file(43, 0.0),
    file(43, 0.0),
    file(44, 0.0),
    file(48, 0.0),
    file(59, 0.0),
    file(59, 0.0),
    file(59, 0.0),
    file(60, 0.0),
    file(65, 0.0),
    file(82, 0.0),
    file(83, 0.0),
    file(97, 0.0),
    file(102, 0.0),
    file(136, 0.0),
    file(217, 0.0),
    file(356, 0.0),
    file(385, 0.0),
    file(523, 0.0),
    file(1_648, 0.0),
    file(1_913, 0.0),
    file(61, 0.0),
    file(378, 0.0),
    file(515, 0.0),
    file(518, 0.0),
    file(922, 0.0),
    file(50, 0.0),
    file(159, 0.0),
    file(519, 0.0),
    file(897, 0.0),
    file(1_069, 0.0),
    file(43, 0.0),
    file(44, 0.0),
    file(80, 0.0),
    file(92, 0.0),
    file(97, 0.0),
    file(98, 0.0),
    file(130, 0.0),
    file(135, 0.0),
    file(135, 0.0),
    file(135, 0.0),
    file(223, 0.0),
    file(586, 0.0),
    file(1_120, 0.0),
];
