//! Sizes, durations and dates as people write them.

use std::time::Duration;

const SIZES: [(&str, u64); 4] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

/// A size in bytes to four or so digits, such as `1.5 MiB`; below 1 KiB exact.
pub(crate) fn size(bytes: u64) -> String {
    match SIZES.iter().rev().find(|(_, unit)| bytes >= *unit) {
        Some((name, unit)) => format!("{:.1} {name}", bytes as f64 / *unit as f64),
        None => format!("{bytes} B"),
    }
}

/// A rate in bytes per second, such as `1.5 MiB/s`; 0 if it is negative.
pub(crate) fn per_second(bytes: f64) -> String {
    format!("{}/s", size(bytes.max(0.0) as u64))
}

/// A time in nanoseconds, such as `12.0 s` or `4 µs`.
pub(crate) fn duration(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{} µs", ns / 1_000),
        1_000_000..1_000_000_000 => format!("{} ms", ns / 1_000_000),
        _ => seconds(ns),
    }
}

/// A time in nanoseconds in seconds, from two minutes on in larger units.
pub(crate) fn seconds(ns: u64) -> String {
    let whole = ns / 1_000_000_000;
    match whole {
        0..120 => format!("{:.1} s", ns as f64 / 1e9),
        120..7_200 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {} min", whole / 3_600, whole / 60 % 60),
    }
}

/// A number and its noun, in the plural if it is not one.
pub(crate) fn plural(n: u64, noun: &str) -> String {
    format!("{} {noun}{}", grouped(n), if n == 1 { "" } else { "s" })
}

/// A number with a comma between thousands.
pub(crate) fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut grouped = String::with_capacity(digits.len() * 4 / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Unix time in nanoseconds as `YYYY-MM-DD HH:MM:SS UTC`.
pub(crate) fn date(unix_ns: u64) -> String {
    let seconds = unix_ns / 1_000_000_000;
    let (mut year, mut days) = (1970, seconds / 86_400);
    let leap = |y: u64| y.is_multiple_of(4) && (!y.is_multiple_of(100) || y.is_multiple_of(400));
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let february = 28 + u64::from(leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    let (hour, minute, second) = (seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
    format!(
        "{year}-{month:02}-{:02} {hour:02}:{minute:02}:{second:02} UTC",
        days + 1
    )
}

/// Bytes of `4096`, `4k`, `1.5m`, `2GiB`; units are powers of 1024, in either case.
///
/// # Errors
///
/// A message with the expected form.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text);
    let factor = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        "t" | "tb" | "tib" => 1u64 << 40,
        _ => {
            return Err(format!(
                "`{text}` is not a size; give one such as `4k`, `1m` or `2GiB`"
            ));
        }
    };
    scale(number, factor)
        .ok_or_else(|| format!("`{text}` is not a size; give one such as `4k`, `1m` or `2GiB`"))
}

/// The time that `60`, `60s`, `1.5m`, `250ms`, `2h` or `1d` names; without a unit it is seconds.
///
/// # Errors
///
/// A message with the expected form.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = split(text);
    let factor = match unit {
        "ns" => Some(1),
        "us" | "µs" => Some(1_000),
        "ms" => Some(1_000_000),
        "" | "s" => Some(1_000_000_000),
        "m" | "min" => Some(60_000_000_000),
        "h" => Some(3_600_000_000_000),
        "d" => Some(86_400_000_000_000),
        _ => None,
    };
    factor
        .and_then(|factor| scale(number, factor))
        .map(Duration::from_nanos)
        .ok_or_else(|| {
            format!("`{text}` is not a duration; give one such as `60s`, `5m` or `250ms`")
        })
}

fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    (number, unit.trim())
}

/// Whole numbers exactly, others to the precision of a float; `None` beyond 64 bits.
fn scale(number: &str, factor: u64) -> Option<u64> {
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(factor);
    }
    let scaled = number.parse::<f64>().ok()? * factor as f64;
    (scaled < u64::MAX as f64).then_some(scaled as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_durations_are_short() {
        assert_eq!(size(0), "0 B");
        assert_eq!(size(1023), "1023 B");
        assert_eq!(size(1536), "1.5 KiB");
        assert_eq!(size(3 << 30), "3.0 GiB");
        assert_eq!(duration(999), "999 ns");
        assert_eq!(duration(1_500_000_000), "1.5 s");
        assert_eq!(seconds(7_260_000_000_000), "2 h 1 min");
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_000), "1,000");
        assert_eq!(grouped(u64::MAX), "18,446,744,073,709,551,615");
    }

    #[test]
    fn dates_follow_the_calendar() {
        assert_eq!(date(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(date(951_782_400_000_000_000), "2000-02-29 00:00:00 UTC");
        assert_eq!(date(1_798_761_599_000_000_000), "2026-12-31 23:59:59 UTC");
    }

    #[test]
    fn sizes_and_durations_are_read() {
        assert_eq!(parse_size("4096"), Ok(4096));
        assert_eq!(parse_size("4k"), Ok(4096));
        assert_eq!(parse_size("1.5m"), Ok(3 << 19));
        assert_eq!(parse_size("2GiB"), Ok(2 << 30));
        assert_eq!(parse_duration("60"), Ok(Duration::from_secs(60)));
        assert_eq!(parse_duration("5m"), Ok(Duration::from_secs(300)));
        assert_eq!(parse_duration("250ms"), Ok(Duration::from_millis(250)));
        for wrong in ["", "k", "-1", "4x", "1.2.3", "99999999999999999999999t"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }
}
