//! The order of values that are numbers or versions.

use std::cmp::Ordering;

/// Longest value that is compared by its numbers.
const LONGEST: usize = 64;

/// Whether values of this field can be ordered: numbers and versions, and no identities.
pub(super) fn is_ordered<'a>(field: &str, mut values: impl Iterator<Item = &'a str>) -> bool {
    let is_number = |value: &str| {
        value.len() <= LONGEST && value.starts_with(|first: char| first.is_ascii_digit())
    };
    !field.ends_with("build_id") && !field.ends_with(".path") && values.all(is_number)
}

/// By numbers within: `5.9` is less than `5.15`.
pub(super) fn compare(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a, b);
    loop {
        let (x, y) = (next(&mut a), next(&mut b));
        let order = match (x.parse::<u128>(), y.parse::<u128>()) {
            (Ok(x), Ok(y)) => x.cmp(&y),
            _ => x.cmp(y),
        };
        if order.is_ne() || x.is_empty() {
            return order;
        }
    }
}

/// The next number, or the text up to it.
fn next<'a>(rest: &mut &'a str) -> &'a str {
    let is_digit = |c: char| c.is_ascii_digit();
    let is_number = rest.starts_with(is_digit);
    let end = rest.find(|c: char| is_digit(c) != is_number);
    let (first, after) = rest.split_at(end.unwrap_or(rest.len()));
    *rest = after;
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_their_numbers() {
        for (less, more) in [
            ("5.9", "5.15"),
            ("5.15.0-91-generic", "6.8.0-40-generic"),
            ("470.82", "535.104.05"),
            ("8", "16"),
            ("1.2", "1.2.1"),
        ] {
            assert_eq!(compare(less, more), Ordering::Less, "{less} {more}");
            assert_eq!(compare(more, less), Ordering::Greater, "{less} {more}");
        }
        assert_eq!(compare("2.1", "2.1"), Ordering::Equal);
    }

    #[test]
    fn identities_have_no_order() {
        assert!(is_ordered("cpu.count", ["8", "16"].into_iter()));
        assert!(!is_ordered("cpu.model", ["8", "EPYC"].into_iter()));
        assert!(!is_ordered(
            "lib.libc.so.6.build_id",
            ["12", "34"].into_iter()
        ));
    }
}
