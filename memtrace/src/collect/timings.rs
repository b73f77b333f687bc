//! Durations of walks, by depth (`memtrace record --time-walks`).

use std::fmt;

use memtrace_common::event::Timing;
use serde_json::{Value, json};

/// Least depths of the buckets, frames.
const DEPTHS: [u32; 7] = [1, 5, 9, 17, 33, 65, 129];

/// Walks of one bucket that are kept, the first ones.
const KEPT: usize = 1 << 20;

/// Durations of walks and of `bpf_get_stackid` for the same events, ns.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timings {
    buckets: [Bucket; DEPTHS.len()],
}

#[derive(Clone, Debug, Default)]
struct Bucket {
    walks: Vec<u64>,
    stackids: Vec<u64>,
}

impl Timings {
    pub(super) fn add(&mut self, timing: &Timing) {
        let after = DEPTHS.partition_point(|&least| least <= timing.frames);
        let Some(bucket) = after
            .checked_sub(1)
            .and_then(|index| self.buckets.get_mut(index))
        else {
            return;
        };
        if bucket.walks.len() < KEPT {
            bucket.walks.push(timing.walk_ns);
            bucket.stackids.push(timing.stackid_ns);
        }
    }

    /// Nothing was measured.
    pub(crate) fn is_empty(&self) -> bool {
        self.buckets.iter().all(|bucket| bucket.walks.is_empty())
    }

    /// Buckets that hold something.
    fn rows(&self) -> impl Iterator<Item = DepthTimings> {
        (0..)
            .zip(&self.buckets)
            .filter(|(_, bucket)| !bucket.walks.is_empty())
            .map(|(index, bucket)| DepthTimings {
                least: DEPTHS[index],
                most: DEPTHS.get(index + 1).map(|next| next - 1),
                count: bucket.walks.len(),
                walk: quantiles(&bucket.walks),
                stackid: quantiles(&bucket.stackids),
            })
    }

    pub(crate) fn to_json(&self) -> Value {
        self.rows()
            .map(|row| {
                json!({
                    "least_frames": row.least,
                    "most_frames": row.most,
                    "walks": row.count,
                    "walk_ns": { "p50": row.walk[0], "p99": row.walk[1] },
                    "stackid_ns": { "p50": row.stackid[0], "p99": row.stackid[1] },
                })
            })
            .collect()
    }
}

struct DepthTimings {
    least: u32,
    most: Option<u32>,
    count: usize,
    walk: [u64; 2],
    stackid: [u64; 2],
}

/// The median and the 99th percentile of at least one value.
fn quantiles(values: &[u64]) -> [u64; 2] {
    let mut values = values.to_vec();
    values.sort_unstable();
    [50, 99].map(|percent| values[(values.len() - 1) * percent / 100])
}

impl fmt::Display for Timings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:>9} {:>9} {:>13} {:>9} {:>19} {:>9}",
            "frames", "walks", "walk ns p50", "p99", "get_stackid ns p50", "p99"
        )?;
        for row in self.rows() {
            let depth = match row.most {
                Some(most) => format!("{}-{most}", row.least),
                None => format!(">{}", row.least - 1),
            };
            writeln!(
                f,
                "{depth:>9} {:>9} {:>13} {:>9} {:>19} {:>9}",
                row.count, row.walk[0], row.walk[1], row.stackid[0], row.stackid[1]
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timing(frames: u32, walk_ns: u64) -> Timing {
        Timing {
            frames,
            walk_ns,
            ..Timing::default()
        }
    }

    #[test]
    fn walks_are_grouped_by_depth() {
        let mut timings = Timings::default();
        assert!(timings.is_empty());
        for depth in [0, 4, 5, 128, 129, 255] {
            timings.add(&timing(depth, u64::from(depth)));
        }
        let depths: Vec<_> = timings
            .rows()
            .map(|row| (row.least, row.most, row.count))
            .collect();
        assert_eq!(
            depths,
            [
                (1, Some(4), 1),
                (5, Some(8), 1),
                (65, Some(128), 1),
                (129, None, 2)
            ]
        );
    }

    #[test]
    fn quantiles_are_values_that_occurred() {
        let values: Vec<u64> = (0..=100).rev().collect();
        assert_eq!(quantiles(&values), [50, 99]);
        assert_eq!(quantiles(&[7]), [7, 7]);
    }
}
