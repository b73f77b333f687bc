//! A recording, or a comparison of two, as one HTML file without references to others: the verdict,
//! memory over time, a flame graph and a table of lines, devices, the fingerprint, losses.
//!
//! The files in `page/` are the page: what is the same in every page. The verdict and other text is
//! HTML from here ([`sections`]); charts are drawn by its script from the [`data`]. Names come from
//! traced programs, so all text is escaped ([`markup`]), and the browser runs only the page's own
//! script, by its hash.

mod comparison;
mod data;
mod layers;
mod markup;
mod ranking;
mod recorded;
mod sections;
#[cfg(test)]
mod tests;
mod tree;

use std::io::{self, Write};

use base64::{Engine, prelude::BASE64_STANDARD};
use sha2::{Digest, Sha256};

use self::{
    data::{Data, Limits},
    markup::{escaped, json},
    ranking::SITES,
};
use super::{Error, until_closed};

pub(crate) use comparison::Compared;
pub(crate) use recorded::Recorded;

const PAGE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");

/// The script: its parts share one scope.
const SCRIPT: &str = concat!(
    "(() => {\n\"use strict\";\n",
    include_str!("page/format.js"),
    include_str!("page/model.js"),
    include_str!("page/chart.js"),
    include_str!("page/flame.js"),
    include_str!("page/table.js"),
    include_str!("page/main.js"),
    "})();\n"
);

/// Most bytes of a page.
const MOST: usize = 2_000_000;

/// Limits to try, until the data is small enough; the last are taken in any case.
const LIMITS: [Limits; 8] = [
    limits(SITES, 1),
    limits(SITES, 4),
    limits(SITES, 24),
    limits(SITES, 80),
    limits(SITES / 2, 24),
    limits(SITES / 5, 24),
    limits(SITES / 20, 24),
    limits(SITES / 100, 40),
];

const fn limits(sites: usize, step: usize) -> Limits {
    Limits { sites, step }
}

/// Writes the page of a recording.
pub(crate) fn html(out: &mut impl Write, recorded: &Recorded) -> Result<(), Error> {
    write(out, recorded, None)
}

/// Writes the page of a comparison; `new` is the recording that has the verdict.
pub(crate) fn html_comparison(
    out: &mut impl Write,
    new: &Recorded,
    compared: &Compared,
) -> Result<(), Error> {
    write(out, new, Some(compared))
}

fn write(
    out: &mut impl Write,
    recorded: &Recorded,
    compared: Option<&Compared>,
) -> Result<(), Error> {
    let mut without_data = Vec::new();
    page(&mut without_data, recorded, compared, "")?;
    let room = MOST.saturating_sub(without_data.len() + 1);
    let data = of_size(room, |limits| match compared {
        None => data::of_recording(recorded, limits),
        Some(compared) => comparison::data(recorded, compared, limits.sites),
    })?;
    let written = page(out, recorded, compared, &data).and_then(|()| out.flush());
    Ok(until_closed(written)?)
}

/// The data under the first limits that make it fit, as JSON.
fn of_size(room: usize, of: impl Fn(Limits) -> Data) -> io::Result<String> {
    let mut text = String::new();
    for limits in LIMITS {
        text = json(&of(limits))?;
        if text.len() <= room {
            break;
        }
    }
    Ok(text)
}

/// Fills the page: its places are names in double braces.
fn page(
    out: &mut impl Write,
    recorded: &Recorded,
    compared: Option<&Compared>,
    data: &str,
) -> io::Result<()> {
    let subject = escaped(&sections::subject(recorded));
    let mut rest = PAGE;
    while let Some((before, after)) = rest.split_once("{{") {
        out.write_all(before.as_bytes())?;
        let (name, after) = after.split_once("}}").unwrap_or((after, ""));
        match name {
            "subject" => write!(out, "{subject}")?,
            "policy" => write!(out, "{}", policy())?,
            "style" => write!(out, "{STYLE}")?,
            "script" => write!(out, "{SCRIPT}")?,
            "data" => write!(out, "{data}")?,
            "about" => sections::about(out, recorded)?,
            "bounds" => match sections::bounds(recorded) {
                None => {}
                Some(bounds) => write!(out, "<p class=\"warning\">{}</p>", escaped(bounds))?,
            },
            "verdict" => sections::verdict(out, recorded)?,
            "comparison" => match compared {
                None => {}
                Some(compared) => comparison::conclusion(out, compared)?,
            },
            "devices" => sections::devices(out, recorded)?,
            "fingerprint" => match compared {
                None => sections::fingerprint(out, recorded)?,
                Some(compared) => comparison::fingerprint(out, recorded, compared)?,
            },
            "losses" => sections::losses(out, recorded)?,
            _ => {
                return Err(io::Error::other(format!(
                    "no such place in the page: {name}"
                )));
            }
        }
        rest = after;
    }
    out.write_all(rest.as_bytes())
}

/// Nothing is loaded, and nothing but the page's own script runs.
fn policy() -> String {
    let hash = |text: &str| format!("'sha256-{}'", BASE64_STANDARD.encode(Sha256::digest(text)));
    format!(
        "default-src 'none'; img-src data:; style-src {}; script-src {}; base-uri 'none'; form-action 'none'",
        hash(STYLE),
        hash(SCRIPT)
    )
}
