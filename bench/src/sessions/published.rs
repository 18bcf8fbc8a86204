//! Published figures of the workloads, for tests.

use super::model::Scenario;
use super::{banking, ecommerce, support};

/// Figures of one workload.
pub(crate) struct Published {
    pub(crate) scenario: &'static Scenario,
    /// Share of each state in all requests, in per cent.
    pub(crate) shares: &'static [f64],
    /// Number, bytes, and bytes after 304s of the files that each page embeds.
    pub(crate) embedded: &'static [(usize, usize, f64)],
    /// Mean size of a page with its embedded files in KB, without downloads (Suzumura and others,
    /// table 2).
    pub(crate) size: f64,
    /// Share of the scripts in all bytes that are sent, in per cent (Trent and others, table 2).
    pub(crate) dynamic: f64,
}

/// The two pictures have 16.894 % together.
pub(crate) const BANKING: Published = Published {
    scenario: &banking::BANKING,
    shares: &[
        21.528, 15.1146, 8.447, 13.8908, 1.1163, 0.8043, 6.6746, 2.2281, 1.2165, 0.8761, 1.2155,
        0.8784, 1.7146, 1.2415, 6.1597, 8.447, 8.447,
    ],
    embedded: &[
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
        (0, 0, 0.0),
        (0, 0, 0.0),
    ],
    size: 34.8,
    dynamic: 59.5,
};

pub(crate) const ECOMMERCE: Published = Published {
    scenario: &ecommerce::ECOMMERCE,
    shares: &[
        13.0834, 6.5461, 11.7532, 10.027, 8.0178, 16.932, 8.9483, 6.1558, 5.2968, 3.7778, 3.5525,
        3.3743, 2.535,
    ],
    embedded: &[
        (25, 96_634, 75_852.0),
        (7, 3_124, 2_187.0),
        (25, 98_700, 77_643.0),
        (12, 63_995, 56_814.0),
        (10, 6_523, 5_701.0),
        (9, 6_017, 5_272.0),
        (9, 6_017, 5_272.0),
        (9, 6_017, 5_272.0),
        (40, 60_493, 60_493.0),
        (21, 6_065, 6_065.0),
        (5, 2_394, 2_394.0),
        (5, 2_694, 2_694.0),
        (13, 2_918, 2_918.0),
    ],
    size: 143.9,
    dynamic: 71.6,
};

pub(crate) const SUPPORT: Published = Published {
    scenario: &support::SUPPORT,
    shares: &[8.1072, 12.6125, 11.7088, 24.7746, 22.5237, 13.5135, 6.7597],
    embedded: &[
        (10, 14_810, 4_806.0),
        (9, 14_790, 4_988.0),
        (8, 11_910, 2_395.0),
        (28, 17_510, 4_801.0),
        (25, 16_750, 4_041.0),
        (25, 16_750, 4_041.0),
        (0, 0, 0.0),
    ],
    size: 78.5,
    dynamic: 11.7,
};

#[test]
fn pages_embed_the_published_bytes() {
    for published in [&BANKING, &ECOMMERCE, &SUPPORT] {
        let Published { scenario, embedded, .. } = published;
        assert_eq!(scenario.states.len(), embedded.len());
        for (state, &(count, bytes, rest)) in scenario.states.iter().zip(*embedded) {
            let files = || state.embedded.iter().map(|&at| scenario.files[usize::from(at)]);
            assert_eq!(files().count(), count, "{}", state.name);
            assert_eq!(files().map(|f| f.size).sum::<usize>(), bytes, "{}", state.name);
            let sent: f64 = files().map(|f| f.size as f64 * (1.0 - f.kept)).sum();
            assert!((sent - rest).abs() < 2.0, "{}: {sent}", state.name);
        }
    }
}
