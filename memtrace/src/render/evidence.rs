//! Evidence in words, and as data for scripts.

use serde_json::{Map, Value, json};

use crate::{
    analysis::verdict::{Amount, Evidence, Rate},
    escape::clean,
    units::{per_second, plural, size},
};

/// The sentence of its kind, with the values in their places.
pub(super) fn words(evidence: &Evidence) -> String {
    let mut words = match evidence.of_runner_up {
        true => "besides: ".to_owned(),
        false => String::new(),
    };
    let mut rest = evidence.kind.sentence;
    while let Some((before, after)) = rest.split_once('{') {
        words += before;
        let (place, after) = after.split_once('}').unwrap_or((after, ""));
        let (name, decimals) = match place.split_once(":.") {
            Some((name, decimals)) => (name, decimals.parse().ok()),
            None => (place, None),
        };
        words += &match evidence.amount(name) {
            Some(amount) => self::amount(amount, decimals),
            None => "?".into(),
        };
        rest = after;
    }
    words + rest
}

fn amount(amount: &Amount, decimals: Option<usize>) -> String {
    let decimals = |usual| decimals.unwrap_or(usual);
    match amount {
        Amount::Bytes(bytes) => size(bytes.max(0.0) as u64),
        Amount::Change(bytes) => signed(*bytes),
        Amount::BytesPerSecond(bytes) => per_second(*bytes),
        Amount::ByteRate(rate) => self::rate(rate, signed),
        Amount::Seconds(seconds) => format!("{seconds:.*} s", decimals(1)),
        Amount::Count(count) => format!("{count:.*}", decimals(0)),
        Amount::CountChange(count) => format!("{count:+.*}", decimals(0)),
        Amount::CountRate(rate) => self::rate(rate, |count| format!("{count:+.1}")),
        Amount::Sites(sites) => plural(*sites, "site"),
        Amount::Share(share) => format!("{:.*} %", decimals(0), share * 100.0),
        Amount::Ratio(ratio) => match decimals(usize::MAX) {
            usize::MAX => ratio.to_string(),
            decimals => format!("{ratio:.decimals$}"),
        },
        Amount::Probability(p) => format!("{p:.1e}"),
        // An upper bound may be more than the whole.
        Amount::Part(bytes, whole) if (0.0..=*whole).contains(bytes) => {
            format!("{} ({:.0} %)", signed(*bytes), bytes / whole * 100.0)
        }
        Amount::Part(bytes, _) => signed(*bytes),
        Amount::Class(class) => class.name().into(),
        Amount::Device(index) => {
            let index = index.map_or("?".into(), |index| index.to_string());
            format!("GPU {index}")
        }
        Amount::Name(name) | Amount::Word(name) => (*name).into(),
        Amount::Text(text) | Amount::Type(text) => clean(text),
        Amount::NoRate(short) => short.to_string(),
    }
}

/// `median rate +1.5 MiB/s (95 %: +1.2 MiB to +1.8 MiB/s)`: not the growth divided by the time.
fn rate(rate: &Rate, one: fn(f64) -> String) -> String {
    let (low, high) = rate.interval;
    format!(
        "median rate {}/s (95 %: {} to {}/s)",
        one(rate.slope),
        one(low),
        one(high)
    )
}

/// A signed size, such as `+1.5 MiB`.
fn signed(bytes: f64) -> String {
    let sign = if bytes < 0.0 { '-' } else { '+' };
    format!("{sign}{}", size(bytes.abs() as u64))
}

/// Evidence as data: the kind, its sentence, the main value with its limit, and all of them by
/// name.
pub(super) fn json(evidence: &Evidence) -> Value {
    let amounts = |all: &[(&str, Amount)]| -> Map<String, Value> {
        let all = all.iter();
        all.filter(|(_, amount)| !matches!(amount, Amount::Word(_)))
            .map(|(name, amount)| ((*name).to_owned(), data(amount)))
            .collect()
    };
    let main = main(evidence).map(data);
    let unit = main.as_ref().and_then(|main| main.get("unit"));
    let limits: Vec<Value> = evidence.limits.iter().map(|of| data(&of.1)).collect();
    let mut same = limits.iter().filter(|limit| limit.get("unit") == unit);
    let limit = match (same.next(), same.next()) {
        (Some(limit), None) => limit.get("value"),
        _ => None,
    };
    json!({
        "kind": evidence.kind.name,
        "text": words(evidence),
        "value": main.as_ref().and_then(|main| main.get("value")),
        "unit": unit,
        "limit": limit,
        "values": amounts(&evidence.values),
        "limits": amounts(&evidence.limits),
        "of_runner_up": evidence.of_runner_up,
    })
}

/// The first number that is not the time in which it was measured.
fn main(evidence: &Evidence) -> Option<&Amount> {
    let numbers = || {
        let values = evidence.values.iter().map(|(_, amount)| amount);
        values.filter(|amount| {
            !matches!(
                amount,
                Amount::Class(_) | Amount::Device(_) | Amount::Name(_) | Amount::Word(_)
            )
        })
    };
    let measured = numbers().find(|amount| !matches!(amount, Amount::Seconds(_)));
    measured.or_else(|| numbers().next())
}

fn data(amount: &Amount) -> Value {
    let rate = |rate: &Rate, unit| {
        json!({
            "value": rate.slope,
            "unit": unit,
            "low": rate.interval.0,
            "high": rate.interval.1,
        })
    };
    let (value, unit) = match amount {
        Amount::Bytes(bytes) | Amount::Change(bytes) => (json!(bytes), "bytes"),
        Amount::BytesPerSecond(bytes) => (json!(bytes), "bytes/s"),
        Amount::ByteRate(of) => return rate(of, "bytes/s"),
        Amount::Seconds(seconds) => (json!(seconds), "s"),
        Amount::Count(count) | Amount::CountChange(count) => (json!(count), "count"),
        Amount::CountRate(of) => return rate(of, "count/s"),
        Amount::Sites(sites) => (json!(sites), "count"),
        Amount::Share(share) => (json!(share), "share"),
        Amount::Ratio(ratio) => (json!(ratio), "ratio"),
        Amount::Probability(p) => (json!(p), "probability"),
        Amount::Part(bytes, whole) => {
            return json!({ "value": bytes, "unit": "bytes", "of": whole });
        }
        Amount::Class(class) => (json!(class.name()), "class"),
        Amount::Device(index) => (json!(index), "device"),
        Amount::Name(name) | Amount::Word(name) => (json!(name), "name"),
        Amount::Text(text) => (json!(text), "line"),
        Amount::Type(name) => (json!(name), "type"),
        Amount::NoRate(_) => (Value::Null, "bytes/s"),
    };
    json!({ "value": value, "unit": unit })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::verdict::Statement;

    static KIND: Statement = Statement {
        name: "example",
        sentence: "{part} in {length:.0}, {rate}: at least {least}",
    };

    fn evidence() -> Evidence {
        let rate = Rate {
            slope: 1536.0,
            interval: (-1.0, 2048.0),
        };
        Evidence {
            kind: &KIND,
            values: vec![
                ("part", Amount::Part(2048.0, 4096.0)),
                ("length", Amount::Seconds(7.6)),
                ("rate", Amount::ByteRate(rate)),
            ],
            limits: vec![("least", Amount::Share(0.3))],
            of_runner_up: false,
        }
    }

    #[test]
    fn values_stand_in_their_places() {
        let mut evidence = evidence();
        let text = "+2.0 KiB (50 %) in 8 s, median rate +1.5 KiB/s (95 %: -1 B to +2.0 KiB/s): at least 30 %";
        assert_eq!(words(&evidence), text);
        evidence.of_runner_up = true;
        assert_eq!(words(&evidence), format!("besides: {text}"));
    }

    #[test]
    fn data_has_units_and_limits() {
        let expected = json!({
            "kind": "example",
            "text": words(&evidence()),
            "value": 2048.0,
            "unit": "bytes",
            "limit": null,
            "values": {
                "part": { "value": 2048.0, "unit": "bytes", "of": 4096.0 },
                "length": { "value": 7.6, "unit": "s" },
                "rate": { "value": 1536.0, "unit": "bytes/s", "low": -1.0, "high": 2048.0 },
            },
            "limits": { "least": { "value": 0.3, "unit": "share" } },
            "of_runner_up": false,
        });
        assert_eq!(json(&evidence()), expected);
    }

    #[test]
    fn a_value_has_the_limit_of_its_unit_if_it_is_the_only_one() {
        let mut evidence = evidence();
        evidence.values = vec![
            ("length", Amount::Seconds(7.6)),
            ("share", Amount::Share(0.5)),
        ];
        let main = |evidence: &Evidence| {
            let json = json(evidence);
            json!([json["value"], json["unit"], json["limit"]])
        };
        assert_eq!(main(&evidence), json!([0.5, "share", 0.3]));
        evidence.limits.push(("most", Amount::Share(0.9)));
        assert_eq!(main(&evidence), json!([0.5, "share", null]));
        evidence.values.pop();
        assert_eq!(main(&evidence), json!([7.6, "s", null]));
        evidence.values.clear();
        assert_eq!(main(&evidence), json!([null, null, null]));
    }
}
