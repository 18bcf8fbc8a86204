//! The parameters of the bank: pages, probabilities, embedded files.

use super::model::{Embedded, Items, Kind, Limits, Scenario, State, Think, file, page};
use std::time::Duration;

pub(crate) const BANKING: Scenario = Scenario {
    head: include_str!("../../sites/banking/head.php"),
    foot: include_str!("../../sites/banking/foot.html"),
    states: STATES,
    files: FILES,
    // Ten checks of each customer, with a picture of either side, which scripts send.
    items: Items { chosen_at: 2, each: 10, files: &[], choose: |random, _| random.usize(..10) },
    limits: Limits { good: Duration::from_secs(2), tolerable: Duration::from_secs(4) },
    think: Think { mean: Duration::from_secs(10), longest: Duration::from_secs(150) },
};

const fn picture(
    name: &'static str,
    first: usize,
    step: usize,
    next: &'static [(usize, f64)],
) -> State {
    let kind = Kind::Picture { first, step };
    State { name, kind, padding: 0, embedded: &[], pictures: &[], next }
}

const STATES: &[State] = &[
    page(
        "login",
        4_000,
        2,
        &[4, 0, 1, 2, 3, 5, 6, 7],
        &[(1, 0.32), (3, 0.32), (12, 0.08), (14, 0.08)],
    ),
    page(
        "account_summary",
        17_000,
        1,
        &[0, 1, 2, 3, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
        &[(2, 0.56), (10, 0.08), (8, 0.08), (14, 0.08)],
    ),
    page(
        "check_detail_html",
        11_000,
        1,
        &[0, 1, 2, 3, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 17, 18, 19, 31],
        &[(15, 1.0)],
    ),
    page(
        "bill_pay",
        15_000,
        1,
        &[0, 1, 2, 3, 6, 7, 8, 14, 16, 20, 21, 26, 27, 32],
        &[(4, 0.08), (6, 0.48), (7, 0.16), (14, 0.08)],
    ),
    page(
        "add_payee",
        18_000,
        1,
        &[0, 1, 2, 3, 6, 7, 8, 13, 14, 16, 20, 21, 26],
        &[(5, 0.72), (14, 0.08)],
    ),
    page(
        "payee_info",
        34_000,
        1,
        &[0, 1, 2, 3, 6, 7, 8, 13, 14, 16, 20, 21, 22, 26, 33],
        &[(3, 0.72), (14, 0.08)],
    ),
    page(
        "quick_pay",
        22_000,
        1,
        &[0, 1, 2, 3, 6, 7, 8, 13, 14, 16, 20, 21, 23, 24, 25, 26, 32],
        &[(3, 0.72), (14, 0.08)],
    ),
    page(
        "billpay_status",
        24_000,
        1,
        &[0, 1, 3, 6, 7, 8, 10, 14, 16, 20, 21, 25, 32],
        &[(3, 0.72), (14, 0.08)],
    ),
    page(
        "chg_profile",
        32_000,
        1,
        &[0, 1, 2, 3, 6, 7, 8, 9, 13, 14, 15, 16, 27, 28],
        &[(9, 0.72), (14, 0.08)],
    ),
    page(
        "post_profile",
        29_000,
        1,
        &[0, 1, 2, 3, 6, 7, 8, 9, 13, 14, 15, 16],
        &[(1, 0.72), (14, 0.08)],
    ),
    page(
        "req_checks",
        21_000,
        1,
        &[0, 1, 2, 3, 6, 7, 8, 9, 13, 14, 15, 16, 29, 30, 34, 35, 36, 37, 38],
        &[(11, 0.72), (14, 0.08)],
    ),
    page(
        "post_chk_order",
        25_000,
        1,
        &[0, 1, 2, 3, 6, 7, 8, 9, 10, 13, 14, 15, 16],
        &[(1, 0.72), (14, 0.08)],
    ),
    page(
        "req_xfer_form",
        13_000,
        1,
        &[0, 1, 2, 3, 6, 7, 8, 9, 10, 13, 14, 15, 16],
        &[(13, 0.72), (14, 0.08)],
    ),
    page(
        "post_fund_xfer",
        16_000,
        1,
        &[0, 1, 2, 3, 6, 7, 8, 9, 10, 13, 14, 15, 16],
        &[(1, 0.72), (14, 0.08)],
    ),
    page("logout", 46_000, 0, &[4, 0, 1, 2, 3, 5, 6, 7], &[]),
    picture("check_front", 10_757, 511, &[(16, 1.0)]),
    picture("check_back", 5_458, 334, &[(1, 0.72), (14, 0.08)]),
];

const FILES: &[Embedded] = &[
    file(806, 0.5),
    file(246, 0.4),
    file(43, 0.4),
    file(1140, 0.5),
    file(36_789, 0.33),
    file(764, 0.33),
    file(1522, 0.7),
    file(858, 0.6),
    file(216, 0.3),
    file(205, 0.2),
    file(316, 0.1),
    file(52, 0.0),
    file(1285, 0.0),
    file(694, 0.1),
    file(676, 0.5),
    file(778, 0.1),
    file(488, 0.3),
    file(764, 0.0),
    file(731, 0.0),
    file(1059, 0.0),
    file(224, 0.0),
    file(208, 0.2),
    file(952, 0.0),
    file(646, 0.0),
    file(353, 0.0),
    file(915, 0.0),
    file(234, 0.0),
    file(1043, 0.0),
    file(1178, 0.0),
    file(1024, 0.0),
    file(1170, 0.0),
    file(102, 0.5),
    file(603, 0.1),
    file(943, 0.0),
    file(11_838, 0.0),
    file(6481, 0.0),
    file(12_836, 0.0),
    file(10_868, 0.0),
    file(11_405, 0.0),
];
