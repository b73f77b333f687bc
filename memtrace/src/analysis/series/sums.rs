//! Sums of the series of a process.

use super::{Figure, ProcessSeries, SiteSeries, heap_allocator};
use crate::{analysis::window::Window, event::Layer, frames::mappings::Use};

impl ProcessSeries {
    /// Resident and swapped-out memory together; `None` if it could not be read. Without file pages
    /// if they become fewer: the kernel reclaims them whenever it likes, which hides other growth.
    pub(crate) fn footprint(&self) -> Option<Vec<f64>> {
        self.figure(Figure::Anon)?;
        let course = Window {
            from: 0,
            to: self.times.len(),
        };
        let file = self
            .figure(Figure::File)
            .filter(|file| course.change(file) >= 0.0);
        let parts = [Figure::Anon, Figure::Shmem, Figure::Swap];
        let parts = parts.iter().filter_map(|figure| self.figure(*figure));
        Some(self.sum(parts.chain(file)))
    }

    /// Headers and rounding of a site's blocks, estimated.
    pub(crate) fn overhead_of(&self, site: &SiteSeries) -> Vec<f64> {
        let allocator = self.heap_allocator;
        let of = |(bytes, count): (&f64, &f64)| match site.key.layer {
            Layer::Heap => heap_allocator::overhead(allocator, *bytes, *count),
            _ => 0.0,
        };
        site.live_bytes
            .iter()
            .zip(&site.live_count)
            .map(of)
            .collect()
    }

    /// Heap and Python's arenas together.
    pub(crate) fn live(&self) -> Vec<f64> {
        self.sum([self.heap.as_slice(), self.python.as_slice()].into_iter())
    }

    /// Resident and swapped memory beyond the blocks of malloc and the mappings of the program; `None` if it could not be
    /// read.
    pub(crate) fn beyond_blocks(&self) -> Option<Vec<f64>> {
        self.figure(Figure::Anon)?;
        let own = [Figure::Anon, Figure::Swap];
        let own = self.sum(own.iter().filter_map(|figure| self.figure(*figure)));
        let mapped = self.mapped(Use::Program);
        let blocks = [&self.heap, &self.overhead, &mapped];
        let blocks = self.sum(blocks.into_iter().map(Vec::as_slice));
        let rest = own.iter().zip(&blocks).map(|(all, blocks)| all - blocks);
        Some(rest.collect())
    }

    /// The point from which on no import adds memory; 0 without imports.
    pub(crate) fn imported(&self) -> usize {
        let sites = self.sites.iter().filter(|site| site.code.is_import);
        let imports = self.sum(sites.map(|site| site.live_bytes.as_slice()));
        let last = imports.windows(2).rposition(|pair| pair[1] > pair[0]);
        last.map_or(0, |before| before + 2)
    }

    pub(crate) fn sum<'a>(&self, parts: impl Iterator<Item = &'a [f64]>) -> Vec<f64> {
        let mut sum = vec![0.0; self.times.len()];
        for part in parts {
            for (sum, value) in sum.iter_mut().zip(part) {
                *sum += value;
            }
        }
        sum
    }
}
