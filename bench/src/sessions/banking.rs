//! The parameters of the bank: pages, probabilities, embedded files.

use super::model::{Embedded, Kind, Limits, Scenario, State, Think};
use std::time::Duration;

/// Checks of each customer, with a picture of either side.
pub(crate) const CHECKS: usize = 10;

pub(crate) const BANKING: Scenario = Scenario {
    states: STATES,
    files: FILES,
    limits: Limits { good: Duration::from_secs(2), tolerable: Duration::from_secs(4) },
    think: Think { mean: Duration::from_secs(10), longest: Duration::from_secs(150) },
};

const fn page(
    name: &'static str,
    padding: usize,
    asks: usize,
    embedded: &'static [u8],
    next: &'static [(usize, f64)],
) -> State {
    State { name, kind: Kind::Page { asks }, padding, embedded, next }
}

const fn picture(
    name: &'static str,
    first: usize,
    step: usize,
    next: &'static [(usize, f64)],
) -> State {
    let kind = Kind::Picture { first, step };
    State { name, kind, padding: 0, embedded: &[], next }
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

const fn file(size: usize, kept: f64) -> Embedded {
    Embedded { size, kept }
}

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

/// Published share of each state in all requests, in per cent. The two pictures have 16.894 % together.
#[cfg(test)]
pub(crate) const SHARES: [f64; 17] = [
    21.528, 15.1146, 8.447, 13.8908, 1.1163, 0.8043, 6.6746, 2.2281, 1.2165, 0.8761, 1.2155,
    0.8784, 1.7146, 1.2415, 6.1597, 8.447, 8.447,
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Published numbers, bytes and bytes after 304s of the files that each page embeds.
    const EMBEDDED: [(usize, usize, f64); 15] = [
        (8, 42_168, 27_107.0),
        (14, 8_837, 5_546.0),
        (18, 11_493, 8_151.0),
        (14, 8_307, 4_987.0),
        (13, 7_355, 4_026.0),
        (15, 9_250, 5_921.0),
        (17, 9_872, 6_483.0),
        (13, 8_218, 4_884.0),
        (14, 9_893, 6_487.0),
        (12, 7_672, 4_266.0),
        (19, 63_294, 59_888.0),
        (13, 7_988, 4_550.0),
        (13, 7_988, 4_550.0),
        (13, 7_988, 4_550.0),
        (8, 42_168, 27_107.0),
    ];

    #[test]
    fn pages_embed_the_published_bytes() {
        for (state, (count, bytes, rest)) in BANKING.states.iter().zip(EMBEDDED) {
            let files: Vec<Embedded> =
                state.embedded.iter().map(|&index| BANKING.files[usize::from(index)]).collect();
            assert_eq!(files.len(), count, "{}", state.name);
            assert_eq!(files.iter().map(|f| f.size).sum::<usize>(), bytes, "{}", state.name);
            let sent: f64 = files.iter().map(|f| f.size as f64 * (1.0 - f.kept)).sum();
            assert!((sent - rest).abs() < 2.0, "{}: {sent}", state.name);
        }
    }
}
