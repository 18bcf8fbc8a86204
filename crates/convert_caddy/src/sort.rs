//! Caddy's sort. Its comparison is no order of all elements: A may precede B and B precede C, but C
//! precede A. The result then depends on the algorithm, so this is the one of Go's `SliceStable`:
//! runs of [`RUN`] elements are sorted by insertion, and neighbours merged in place by SymMerge (Kim
//! and Kutzner, "Stable Minimum Storage Merging by Symmetric Comparisons", 2004).

use super::order::Rank;

/// The length of a run that is sorted by insertion.
const RUN: usize = 20;

/// Sorts directives as Caddy does.
pub(super) fn sort<T>(items: &mut [(Rank, T)]) {
    for run in items.chunks_mut(RUN) {
        insertion(run);
    }
    let mut length = RUN;
    while length < items.len() {
        for pair in items.chunks_mut(2 * length).filter(|pair| pair.len() > length) {
            merge(pair, length);
        }
        length *= 2;
    }
}

fn insertion<T>(items: &mut [(Rank, T)]) {
    for end in 1..items.len() {
        let mut at = end;
        while at > 0 && items[at].0.precedes(&items[at - 1].0) {
            items.swap(at, at - 1);
            at -= 1;
        }
    }
}

/// Merges two sorted parts; the second begins at `middle`.
fn merge<T>(items: &mut [(Rank, T)], middle: usize) {
    let end = items.len();
    if middle == 0 || middle == end {
        return;
    }
    if middle == 1 {
        let at = first(1, end, |at| !items[at].0.precedes(&items[0].0));
        return items[..at].rotate_left(1);
    }
    if end - middle == 1 {
        let at = first(0, middle, |at| items[middle].0.precedes(&items[at].0));
        return items[at..].rotate_right(1);
    }
    let half = end / 2;
    // Elements at the same distance from the middle of both halves are compared.
    let sum = half + middle;
    let (from, to) = if middle > half { (sum - end, half) } else { (0, middle) };
    let start = first(from, to, |at| items[sum - 1 - at].0.precedes(&items[at].0));
    let stop = sum - start;
    if start < middle && middle < stop {
        items[start..stop].rotate_left(middle - start);
    }
    let (left, right) = items.split_at_mut(half);
    merge(left, start);
    merge(right, stop - half);
}

/// The first place in a range at which a test holds, by bisection.
fn first(from: usize, to: usize, holds: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (from, to);
    while low < high {
        let at = low.midpoint(high);
        match holds(at) {
            true => high = at,
            false => low = at + 1,
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::super::order::Rank;
    use super::sort;

    fn sorted(paths: &[usize]) -> Vec<usize> {
        let rank = |path: &usize| Rank { place: 0, path: *path, has_matcher: true };
        let mut items: Vec<_> = paths.iter().map(rank).zip(0..).collect();
        sort(&mut items);
        items.into_iter().map(|(_, number)| number).collect()
    }

    #[test]
    fn runs_are_merged_as_go_merges_them() {
        // Results of Go's sort.SliceStable with Caddy's comparison.
        let paths =
            [14, 12, 0, 11, 13, 13, 9, 9, 7, 12, 11, 0, 0, 10, 0, 14, 0, 0, 6, 0, 0, 14, 9, 11, 10];
        let expected = [
            0, 1, 2, 20, 21, 4, 5, 9, 3, 10, 23, 24, 6, 7, 8, 11, 12, 13, 14, 15, 16, 17, 18, 19,
            22,
        ];
        assert_eq!(sorted(&paths), expected);
        assert_eq!(sorted(&[0, 3, 0, 5, 4]), [0, 1, 2, 3, 4]);
    }
}
