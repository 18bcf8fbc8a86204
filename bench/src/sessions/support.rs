//! The parameters of a manufacturer's site for support: pages, probabilities, downloads.

use super::model::{Embedded, Items, Kind, Limits, Scenario, State, Think, file, page};
use std::time::Duration;

pub(crate) const SUPPORT: Scenario = Scenario {
    head: include_str!("../../sites/support/head.php"),
    foot: include_str!("../../sites/support/foot.html"),
    states: STATES,
    files: FILES,
    items: Items { chosen_at: 6, each: 16, files: &[&SIZES], choose },
    limits: Limits { good: Duration::from_secs(3), tolerable: Duration::from_secs(5) },
    think: Think { mean: Duration::from_secs(5), longest: Duration::from_secs(75) },
};

const STATES: &[State] = &[
    page("home", 51_700, 1, &[3, 5, 6, 7, 13, 16, 22, 23, 25, 26], &[(1, 0.25), (2, 0.75)]),
    page("search", 18_000, 1, &[3, 5, 7, 13, 16, 22, 23, 25, 30], &[(3, 0.5), (1, 0.5)]),
    page("catalog", 27_500, 1, &[3, 5, 6, 7, 13, 16, 22, 23], &[(3, 0.75), (1, 0.25)]),
    page("product", 52_700, 1, &PRODUCT, &[(4, 0.8), (2, 0.2)]),
    page("fileCatalog", 94_500, 1, PRODUCT.split_at(25).0, &[(5, 0.6), (3, 0.4)]),
    page(
        "file",
        113_300,
        1,
        PRODUCT.split_at(25).0,
        &[(6, 0.5), (4, 0.2), (3, 0.05), (2, 0.05), (1, 0.1), (0, 0.1)],
    ),
    State {
        name: "download",
        kind: Kind::Download,
        padding: 0,
        embedded: &[],
        pictures: &[],
        next: &[],
    },
];

/// Files of the product's page; other pages have the first 25 of them.
const PRODUCT: [u8; 28] = [
    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 27,
    28, 29,
];

const FILES: &[Embedded] = &[
    file(30, 0.66),
    file(30, 0.66),
    file(810, 0.66),
    file(60, 0.8),
    file(50, 0.66),
    file(50, 0.8),
    file(270, 0.75),
    file(130, 0.8),
    file(110, 0.66),
    file(80, 0.66),
    file(90, 0.66),
    file(90, 0.66),
    file(90, 0.66),
    file(4_180, 0.8),
    file(700, 0.66),
    file(1_830, 0.66),
    file(1_510, 0.8),
    file(110, 0.66),
    file(70, 0.66),
    file(60, 0.66),
    file(250, 0.66),
    file(360, 0.66),
    file(40, 0.8),
    file(5_670, 0.8),
    file(80, 0.66),
    file(980, 0.5),
    file(1_920, 0.0),
    file(240, 0.0),
    file(260, 0.0),
    file(260, 0.0),
    file(2_170, 0.0),
];

/// Sizes of the downloads of a group.
const SIZES: [usize; 16] = [
    104_858, 209_716, 314_574, 419_432, 524_290, 629_146, 754_975, 880_804, 1_048_576, 1_541_407,
    2_034_238, 2_527_069, 4_194_304, 5_546_967, 9_992_929, 37_748_736,
];

/// Classes of downloads: the share of each, and the shares of its files.
const CLASSES: [(f64, &[f64]); 6] = [
    (0.1366, &[0.273, 0.091, 0.165, 0.186, 0.285]),
    (0.1261, &[0.579, 0.178, 0.243]),
    (0.284, &[0.275, 0.17, 0.17, 0.385]),
    (0.2232, &[0.667, 0.333]),
    (0.125, &[1.0]),
    (0.1051, &[1.0]),
];

/// The exponent of the groups' popularity (Zipf).
const ALPHA: f64 = 1.2;

fn choose(random: &mut fastrand::Rng, groups: usize) -> usize {
    let ranks = || (1_u32..).map(|rank| f64::from(rank).powf(-ALPHA)).take(groups);
    let sum: f64 = ranks().sum();
    let group = at(random, ranks().map(|weight| weight / sum));
    let class = at(random, CLASSES.iter().map(|class| class.0));
    let before: usize = CLASSES[..class].iter().map(|class| class.1.len()).sum();
    group * SIZES.len() + before + at(random, CLASSES[class].1.iter().copied())
}

/// The place of one of these probabilities, which add up to 1.
fn at(random: &mut fastrand::Rng, probabilities: impl Iterator<Item = f64>) -> usize {
    let mut left = random.f64();
    let mut last = 0;
    for (place, probability) in probabilities.enumerate() {
        last = place;
        left -= probability;
        if left < 0.0 {
            break;
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn downloads_have_the_published_sizes_and_popularity() {
        const DOWNLOADS: usize = 1_000_000;
        const GROUPS: usize = 40;
        let mut random = fastrand::Rng::with_seed(5);
        let (mut bytes, mut groups, mut classes) = (0.0, vec![0.0; GROUPS], [0.0; 6]);
        for _ in 0..DOWNLOADS {
            let item = choose(&mut random, GROUPS);
            bytes += SUPPORT.size(0, item) as f64;
            groups[item / SIZES.len()] += 1.0;
            let place = item % SIZES.len();
            let class = [5, 8, 12, 14, 15, 16].iter().position(|&end| place < end);
            classes[class.expect("a class")] += 1.0;
        }
        let mean = bytes / DOWNLOADS as f64 / 1e6;
        assert!((mean - 6.92).abs() < 0.06, "{mean} MB");
        for (&count, class) in classes.iter().zip(CLASSES) {
            let share = count / DOWNLOADS as f64;
            assert!((share - class.0).abs() < 0.002, "{share} instead of {}", class.0);
        }
        // The second group is asked for 2^1.2 times less, and the tenth one 10^1.2 times.
        for (rank, factor) in [(2, 2.297), (10, 15.85)] {
            let ratio = groups[0] / groups[rank - 1];
            assert!((ratio / factor - 1.0_f64).abs() < 0.03, "rank {rank}: {ratio}");
        }
    }
}
