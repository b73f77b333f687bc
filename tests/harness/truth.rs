//! A target's own report: one JSON line per process and site.

use serde::Deserialize;
use std::{collections::BTreeMap, fs, path::Path};

/// A process (tgid) and the name of a site in it, without `site_`.
pub type Site = (u32, String);

/// Figures of one site. Bytes as requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Counts {
    pub live_bytes: u64,
    pub live_count: u64,
    pub alloc_bytes: u64,
    pub alloc_count: u64,
}

impl Counts {
    pub fn add(&mut self, other: Counts) {
        self.live_bytes += other.live_bytes;
        self.live_count += other.live_count;
        self.alloc_bytes += other.alloc_bytes;
        self.alloc_count += other.alloc_count;
    }
}

/// The reports of all processes of one run.
#[derive(Debug, Default)]
pub struct Truth {
    pub sites: BTreeMap<Site, Counts>,
    /// `(a, b, bytes)`: process `a` keeps that much less of its inherited memory than `b`.
    pub inheritances: Vec<(u32, u32, u64)>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Site {
        tgid: u32,
        site: String,
        #[serde(flatten)]
        counts: Counts,
    },
    Inheritance {
        tgid: u32,
        inherits_less_than: u32,
        bytes: u64,
    },
}

impl Truth {
    /// Reads a target's output.
    #[track_caller]
    pub fn read(path: &Path) -> Self {
        let mut truth = Self::default();
        for line in fs::read_to_string(path).unwrap().lines() {
            match serde_json::from_str(line).unwrap() {
                // A program before and after exec writes twice.
                Line::Site { tgid, site, counts } => {
                    truth.sites.entry((tgid, site)).or_default().add(counts);
                }
                Line::Inheritance {
                    tgid,
                    inherits_less_than,
                    bytes,
                } => truth.inheritances.push((tgid, inherits_less_than, bytes)),
            }
        }
        assert!(!truth.sites.is_empty(), "the target said nothing");
        truth
    }
}
