//! Figures of several rounds, summed up.

/// The median of the figures of all rounds, and the least and the greatest.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Summary {
    pub(super) median: f64,
    pub(super) least: f64,
    pub(super) most: f64,
}

/// `None` without figures.
pub(super) fn summary(values: &[f64]) -> Option<Summary> {
    let mut sorted = values.to_vec();
    let median = median(&mut sorted);
    Some(Summary {
        median,
        least: *sorted.first()?,
        most: *sorted.last()?,
    })
}

/// The median of the ratios of one round each: what slows a round down slows down both of its
/// figures. Above 1 means longer, also for figures that are rates.
pub(super) fn times(values: &[f64], base: &[f64], rates: bool) -> Option<f64> {
    let ratios = values.iter().zip(base).map(|(value, base)| match rates {
        true => base / value,
        false => value / base,
    });
    summary(&ratios.collect::<Vec<_>>()).map(|ratios| ratios.median)
}

/// Sorts the values; not a number without any.
pub(super) fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match (values.len() % 2, values.get(middle)) {
        (_, None) => f64::NAN,
        (1, Some(value)) => *value,
        (_, Some(value)) => (values[middle - 1] + value) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_even_number_of_rounds_has_the_mean_of_the_middle_two() {
        assert_eq!(median(&mut [4.0, 1.0, 3.0, 2.0]), 2.5);
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), 2.0);
    }

    #[test]
    fn a_summary_has_the_extremes_of_unsorted_figures() {
        let expected = Summary {
            median: 5.0,
            least: 1.0,
            most: 9.0,
        };
        assert_eq!(summary(&[5.0, 9.0, 1.0]), Some(expected));
        assert_eq!(summary(&[]), None);
    }

    #[test]
    fn ratios_are_taken_within_rounds() {
        // The ratio of the medians would be 3.
        let (traced, untraced) = ([2.0, 40.0, 6.0], [1.0, 2.0, 6.0]);
        assert_eq!(times(&traced, &untraced, false), Some(2.0));
    }

    #[test]
    fn half_the_rate_is_twice_the_time() {
        assert_eq!(times(&[50.0], &[100.0], true), Some(2.0));
        assert_eq!(times(&[50.0], &[100.0], false), Some(0.5));
    }
}
