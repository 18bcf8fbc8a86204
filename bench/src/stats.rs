//! Medians and spreads. The machine's noise is far from normal, so means and deviations would
//! mislead.

/// A median with the smallest and largest value it came from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// The spread of these values; `None` if there are none.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let (&min, &max) = (sorted.first()?, sorted.last()?);
        let middle = sorted.len() / 2;
        let median = if sorted.len().is_multiple_of(2) {
            f64::midpoint(sorted[middle - 1], sorted[middle])
        } else {
            sorted[middle]
        };
        Some(Self { median, min, max })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_odd_even_one_and_none() {
        let spread = |values: &[f64]| Spread::of(values.iter().copied());
        assert_eq!(spread(&[]), None);
        assert_eq!(spread(&[4.0]).map(|s| s.median), Some(4.0));
        assert_eq!(spread(&[9.0, 1.0, 3.0]), Some(Spread { median: 3.0, min: 1.0, max: 9.0 }));
        assert_eq!(spread(&[4.0, 1.0, 3.0, 100.0]).map(|s| s.median), Some(3.5));
    }
}
