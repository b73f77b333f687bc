//! A search once everything that is reachable is known: the questions that can be put to it.

use super::{
    census::OfType,
    doubts::Doubts,
    error::Error,
    graph::{Graph, NodeId, RootWord, Unreached},
    lost::{Lost, LostBlocks, LostOf},
    memory::{Cached, Live},
    native::{self, Block, Native},
    python::Python,
    retained::Retained,
    subject::Subject,
    ways::{self, Lengths, Naming},
    witness::{self, Witness, Witnesses},
};
use crate::{
    hash::{FastMap, mix},
    ledger::{Extent, SiteKey},
    process::maps::Mapping,
    recording::{Path, Step, Unknown, Way, WayKind},
};
use std::{
    cell::RefCell,
    collections::HashMap,
    thread,
    time::{Duration, Instant},
};

/// Readings of a path before it is given up.
const TRIES: usize = 3;

/// If more than this share of the blocks that are reached have no path that holds, another search may find some.
const MOST_UNPROVEN: f64 = 0.2;

/// Between two readings of the lengths of containers.
const GROWTH_TIME: Duration = Duration::from_secs(1);

/// The same of a process that may end soon, and grows fast.
const BRIEF: Duration = Duration::from_millis(200);

/// Elements of a container that is examined only for its growth.
const LONG: u64 = 8;

/// Containers that are named because they grow.
const GROWING: usize = 5;

/// What a search found out about a group of addresses.
#[derive(Debug, Default)]
pub(super) struct Looked {
    pub(super) sampled: u32,
    /// The most frequent first.
    pub(super) ways: Vec<Way>,
    /// Why those of some are not known.
    pub(super) unknown: Option<Unknown>,
}

/// The search, once everything that is reachable is known.
pub(super) struct Scene<'a> {
    pub(super) subject: &'a Subject,
    pub(super) graph: &'a Graph<'a>,
    /// If it is requested.
    pub(super) retained: Option<Retained>,
    pub(super) native: &'a Native,
    pub(super) mappings: &'a [Mapping],
    pub(super) cached: &'a Cached<Live>,
    /// Mappings that are sought.
    pub(super) mapped: &'a [Extent],
    pub(super) site_of: &'a dyn Fn(u64) -> Option<SiteKey>,
    pub(super) redact: bool,
    /// Whether the user has ended the search.
    pub(super) is_over: &'a dyn Fn() -> bool,
    pub(super) why_no_python: Option<String>,
    pub(super) longest_stop: Duration,
    /// Whether no other search follows this one.
    pub(super) is_last: bool,
    /// Whether each group matters as much as all of them together.
    pub(super) each: bool,
    /// Blocks are reachable, but no path to any of them could be verified; or not to many, and another search follows.
    pub(super) lacks_paths: bool,
    /// What another search should know.
    pub(super) doubts: Doubts,
}

impl Scene<'_> {
    /// All objects of a type that something holds.
    pub(super) fn of_type(&self, name: &str) -> Result<Vec<u64>, Error> {
        let python = self.python()?;
        let objects = self.graph.objects();
        let of_type = objects.filter(|&object| python.is_of_type(self.cached, object, name));
        Ok(of_type.collect())
    }

    /// The objects of each type that are still there.
    pub(super) fn of_types(&self, types: &[OfType]) -> Vec<Vec<u64>> {
        let memory = self.cached.now();
        let is_there = |name: &str, object: u64| {
            let python = self.graph.python;
            python.is_some_and(|python| python.is_of_type(memory, object, name))
        };
        let there = types.iter().map(|of| {
            let objects = of.addresses.iter().copied();
            objects
                .filter(|&object| is_there(&of.name, object))
                .collect()
        });
        there.collect()
    }

    /// A sample of the objects in these arenas, about evenly by bytes: what takes the most room is found most often.
    pub(super) fn objects_in(&self, arenas: &[Extent], most: usize) -> Vec<u64> {
        sample(self.graph.objects(), arenas, most)
    }

    /// The mappings that are no stacks.
    pub(super) fn of_no_stack(&self, mappings: &[Extent]) -> Vec<u64> {
        let has_stack =
            |&(start, size): &Extent| self.native.roots.has_stack(&(start..start + size));
        let others = mappings.iter().filter(|extent| !has_stack(extent));
        others.map(|&(start, _)| start).collect()
    }

    /// Between two readings of lengths.
    fn growth_time(&self) -> Duration {
        match self.subject.is_untouched() {
            true => BRIEF,
            false => GROWTH_TIME,
        }
    }

    /// The containers that got the most elements within [`Scene::growth_time`], twice in a row.
    pub(super) fn growing(&self) -> Result<Vec<u64>, Error> {
        let python = self.python()?;
        let running = self.subject.running();
        let running = running.ok_or_else(|| Error::Still(self.subject.pid()))?;
        let lengths = || -> FastMap<u64, u64> {
            let memory = Cached::new(running.clone());
            let objects = self.graph.objects_with_references();
            let long = objects.filter_map(|object| {
                let length = python.length(&memory, object)?.value;
                (length >= LONG).then_some((object, length))
            });
            long.collect()
        };
        let first = lengths();
        thread::sleep(self.growth_time());
        let second = lengths();
        thread::sleep(self.growth_time());
        let third = lengths();
        let mut grown: Vec<(u64, u64)> = third
            .iter()
            .filter_map(|(object, last)| {
                let (first, second) = (first.get(object)?, second.get(object)?);
                (first < second && second < last).then(|| (last - first, *object))
            })
            .collect();
        grown.sort_unstable_by(|a, b| b.cmp(a));
        Ok(grown
            .into_iter()
            .map(|(_, object)| object)
            .filter(|&object| !python.is_weak(self.cached.now(), object))
            .take(GROWING)
            .collect())
    }

    /// # Errors
    /// No block of malloc is known: its allocator is not glibc's, and nothing was recorded.
    pub(super) fn knows_blocks(&self) -> Result<(), Error> {
        match &self.native.note {
            Some(why) if self.graph.blocks.len() == 0 => Err(Error::NoBlocks(why.clone())),
            _ => Ok(()),
        }
    }

    /// Blocks that nothing points to. Those that only garbage holds are not among them.
    pub(super) fn lost(&self) -> Vec<Block> {
        let blocks = self.graph.blocks;
        let numbers = 0..blocks.len();
        let lost = numbers.filter(|&number| self.graph.holder(number as NodeId).is_none());
        let memory = self.cached.now();
        let blocks = lost.map(|number| blocks.block(number));
        let blocks = blocks.filter(|block| native::is_allocated(memory, *block));
        let mut blocks: Vec<Block> = blocks.collect();
        let marked = self.marked(blocks.iter().map(|block| block.start));
        blocks.retain(|block| !marked.contains_key(&block.start));
        blocks
    }

    /// Those of the addresses that words with marks have.
    fn marked(&self, addresses: impl Iterator<Item = u64>) -> FastMap<u64, ()> {
        let addresses = addresses.map(|address| (address, ())).collect();
        let pid = self.subject.pid();
        self.graph
            .marked(&addresses, pid, self.cached, self.is_over)
    }

    fn python(&self) -> Result<&Python, Error> {
        self.graph.python.ok_or_else(|| Error::NoPython {
            pid: self.subject.pid(),
            why: self.why_no_python.clone(),
        })
    }

    /// The holders of each group of addresses.
    pub(super) fn look(&mut self, groups: &[&[u64]]) -> Result<Vec<Looked>, Error> {
        let memory = self.cached.now();
        let targets: Vec<(usize, NodeId)> = groups
            .iter()
            .enumerate()
            .flat_map(|(group, addresses)| {
                let reached = addresses.iter().filter_map(|&at| self.reached(at));
                reached.map(move |node| (group, node))
            })
            .collect();
        let mut found: Vec<(usize, Witness)> = Vec::new();
        let mut rest = targets.clone();
        for _ in 0..TRIES {
            let nodes: Vec<NodeId> = rest.iter().map(|(_, node)| *node).collect();
            let witnesses = Witnesses::new(self.graph, &nodes, memory.clone());
            let (mut owners, mut tried) = (Vec::new(), Vec::new());
            let mut failed = Vec::new();
            for (group, node) in rest {
                match witnesses.witness(node) {
                    Ok(witness) => {
                        owners.push((group, node));
                        tried.push(witness);
                    }
                    Err(broken) => {
                        broken.doubt(self.graph, &mut self.doubts);
                        failed.push((group, node));
                    }
                }
            }
            let verified = witness::verify(self.subject, &tried, self.mappings)
                .map_err(|error| Error::Stop(error.to_string()))?;
            self.longest_stop = self.longest_stop.max(verified.longest_stop);
            let outcome = owners.into_iter().zip(tried).zip(verified.broken);
            for (((group, node), witness), broken) in outcome {
                match broken {
                    None => found.push((group, witness)),
                    Some(broken) => {
                        broken.doubt(self.graph, &mut self.doubts);
                        failed.push((group, node));
                    }
                }
            }
            rest = failed;
            if rest.is_empty() {
                break;
            }
        }
        self.lacks_paths = found.is_empty() && !rest.is_empty();
        let is_poor = |all: &[(usize, NodeId)]| {
            let has_failed = |one: &&(usize, NodeId)| rest.contains(one);
            let failed = all.iter().filter(has_failed).count();
            failed as f64 > MOST_UNPROVEN * all.len() as f64
        };
        let is_poor = match self.each {
            true => targets.chunk_by(|a, b| a.0 == b.0).any(is_poor),
            false => is_poor(&targets),
        };
        if is_poor && !self.is_last {
            self.lacks_paths = true;
            let unknown = groups.iter().map(|group| Looked {
                sampled: group.len() as u32,
                ..Looked::default()
            });
            return Ok(unknown.collect());
        }
        let lost = self.lost_of(groups);
        let (lengths, growth) = self.lengths(&found);
        let naming = self.naming();
        let samples = groups.iter().enumerate().map(|(group, addresses)| {
            let own = found.iter().filter(|(of, _)| *of == group);
            let own: Vec<&Witness> = own.map(|(_, witness)| witness).collect();
            let mut ways = ways::ways(&naming, &own, &lengths, &growth);
            // A few may be objects that the program was about to drop.
            ways.retain(|way| {
                matches!(way.held, WayKind::Path(_)) || 2 * way.blocks as usize >= own.len()
            });
            ways.extend(self.lost_ways(&lost[group]));
            ways.sort_by_key(|way| std::cmp::Reverse(way.blocks));
            let unproven = rest.iter().filter(|(of, _)| *of == group);
            let unproven: Vec<NodeId> = unproven.map(|(_, node)| *node).collect();
            Looked {
                sampled: addresses.len() as u32,
                unknown: self.unknown(addresses, &ways, &unproven, &lost[group]),
                ways,
            }
        });
        Ok(samples.collect())
    }

    /// Why some of these addresses are held in no way that is known; to the `unproven` nodes a path leads.
    fn unknown(
        &self,
        addresses: &[u64],
        ways: &[Way],
        unproven: &[NodeId],
        lost: &LostOf,
    ) -> Option<Unknown> {
        let known: usize = ways.iter().map(|way| way.blocks as usize).sum();
        let is_unclear = |node: &&NodeId| {
            let root = self.graph.path(**node).map(|(root, _)| root);
            matches!(root, Some(RootWord::Unreached(Unreached::Unclear)))
        };
        let unclear = unproven.iter().filter(is_unclear).count();
        let changing = unproven.len() - unclear;
        let may_be_lost = addresses.iter().filter(|&&at| self.may_be_lost(at));
        let may_be_lost = may_be_lost.count();
        let others = known + unproven.len() + lost.marked + may_be_lost;
        let gone = addresses.len().saturating_sub(others);
        let reasons = [
            (gone, Unknown::Gone),
            (unclear, Unknown::Unclear),
            (lost.marked, Unknown::Marked),
            (may_be_lost, Unknown::OtherAllocator),
            (changing, Unknown::Changing),
        ];
        let most = reasons.into_iter().max_by_key(|(blocks, _)| *blocks);
        match addresses {
            [] => Some(Unknown::NoObject),
            _ => most.filter(|(blocks, _)| *blocks > 0).map(|(_, why)| why),
        }
    }

    /// Sources of the names of steps.
    pub(super) fn naming(&self) -> Naming<'_> {
        Naming {
            graph: self.graph,
            native: self.native,
            memory: self.cached.now(),
            site_of: self.site_of,
            redact: self.redact,
            buffers: RefCell::default(),
        }
    }

    /// Lengths of the containers on paths, and how many elements a second each gets. Nothing is known of that while the
    /// process is stopped.
    pub(super) fn lengths(&self, found: &[(usize, Witness)]) -> (Lengths, HashMap<NodeId, f64>) {
        let read = |memory: &Live| {
            let witnesses = found.iter().map(|(_, witness)| witness);
            ways::lengths(self.graph, witnesses, memory)
        };
        let Some(running) = self.subject.running() else {
            return (read(self.cached.now()), HashMap::new());
        };
        let before = read(&running);
        if before.is_empty() {
            return (before, HashMap::new());
        }
        let began = Instant::now();
        thread::sleep(self.growth_time());
        let after = read(&running);
        let growth = ways::growth(&before, &after, began.elapsed().as_secs_f64());
        (after, growth)
    }

    /// The node of the object or the block at an address, if it was reached. Before an object are words of the interpreter.
    fn reached(&self, address: u64) -> Option<NodeId> {
        let object = || {
            self.graph
                .reached(self.graph.object_at(address, self.cached.now())?)
        };
        self.graph.reached(address).or_else(object)
    }

    /// For each group, the live blocks at its addresses to which nothing leads, and how each of them is lost.
    fn lost_of(&self, groups: &[&[u64]]) -> Vec<LostOf> {
        let lost = LostBlocks::new(self.graph, self.cached.now());
        let blocks = self.graph.blocks;
        let of_groups = groups.iter().map(|addresses| {
            let addresses = addresses.iter().filter(|&&at| self.is_lost(at));
            let blocks = addresses.filter_map(|&at| blocks.containing(at));
            let blocks = blocks.map(|block| (block as NodeId, lost.how(block as NodeId)));
            LostOf {
                blocks: blocks.collect(),
                marked: 0,
            }
        });
        let mut of_groups: Vec<LostOf> = of_groups.collect();
        let starts = of_groups.iter().flat_map(LostOf::nodes);
        let marked = self.marked(starts.map(|node| self.graph.address(node)));
        // Without the whole search, they may be in use.
        let is_over = (self.is_over)();
        let is_marked = |node| is_over || marked.contains_key(&self.graph.address(node));
        of_groups.iter_mut().for_each(|of| of.leave_out(is_marked));
        of_groups
    }

    /// The ways in which they are lost.
    fn lost_ways(&self, lost: &LostOf) -> Vec<Way> {
        let mut ways: Vec<Way> = Vec::new();
        let naming = self.naming();
        for (_, how) in &lost.blocks {
            let held = match how {
                Lost::Alone => WayKind::Nothing,
                Lost::With(first) => WayKind::LostWith(Path::of(vec![naming.block(*first)])),
                Lost::Cycle(blocks) => {
                    let mut steps: Vec<Step> = blocks.iter().map(|&it| naming.block(it)).collect();
                    // Wherever the search enters the circle, it is the same one.
                    let by_type = |(_, step): &(usize, &Step)| step.type_name.clone();
                    let first = steps.iter().enumerate().max_by_key(by_type);
                    let first = first.map_or(0, |(place, _)| place);
                    steps.rotate_left(first);
                    WayKind::LostCycle(Path::of(steps))
                }
            };
            match ways.iter_mut().find(|way| way.held == held) {
                Some(way) => way.blocks += 1,
                None => ways.push(Way { blocks: 1, held }),
            }
        }
        ways
    }

    /// Whether there is a live block, and nothing that leads to it.
    fn is_lost(&self, address: u64) -> bool {
        let Some(number) = self.unreached(address) else {
            return false;
        };
        let block = self.graph.blocks.block(number);
        // Mappings that were unmapped meanwhile are no blocks.
        self.is_mapped(block)
            || !self.has_other_allocator() && native::is_allocated(self.cached.now(), block)
    }

    /// Whether there is a block of another allocator than glibc's, and nothing that leads to it. It was live when the
    /// recording ended; the allocator may have freed it since, unseen.
    fn may_be_lost(&self, address: u64) -> bool {
        let block = self.unreached(address);
        let block = block.map(|number| self.graph.blocks.block(number));
        self.has_other_allocator() && block.is_some_and(|block| !self.is_mapped(block))
    }

    fn has_other_allocator(&self) -> bool {
        self.native.note.is_some()
    }

    /// Whether a block is a mapping that is sought.
    fn is_mapped(&self, block: Block) -> bool {
        let mut mapped = self.mapped.iter();
        mapped.any(|&(start, _)| start == block.start)
    }

    /// The block at an address that has no object, and to which nothing leads.
    fn unreached(&self, address: u64) -> Option<usize> {
        let is_object = || {
            let object = self.graph.object_at(address, self.cached.now());
            object.is_some()
        };
        match self.reached(address).is_some() || self.graph.is_in_pool(address) || is_object() {
            true => None,
            false => self.graph.blocks.containing(address),
        }
    }
}

/// Of the objects that are in these arenas, those next to each of about `most` places, one at random in each part of
/// the arenas: objects of several types alternate, and places equally far apart would find one type again and again.
fn sample(objects: impl Iterator<Item = u64>, arenas: &[Extent], most: usize) -> Vec<u64> {
    let mut arenas: Vec<Extent> = arenas.to_vec();
    arenas.sort_unstable();
    let is_inside = |object: &u64| {
        let after = arenas.partition_point(|&(start, _)| start <= *object);
        let arena = after.checked_sub(1).and_then(|index| arenas.get(index));
        arena.is_some_and(|&(start, size)| object - start < size)
    };
    let mut inside: Vec<u64> = objects.filter(is_inside).collect();
    inside.sort_unstable();
    let size: u64 = arenas.iter().map(|&(_, size)| size).sum();
    let step = (size / most as u64).max(1);
    let mut sampled = Vec::new();
    for (start, size) in arenas {
        for part in (start..start + size).step_by(step as usize) {
            let place = part + mix(part) % step;
            let next = inside.partition_point(|&object| object < place);
            sampled.extend(inside.get(next).filter(|&&object| object < place + step));
        }
    }
    sampled.dedup();
    sampled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_of_arenas_are_sampled_by_the_room_that_they_take() {
        let arenas = [(0x20_0000, 0x10_0000), (0x80_0000, 0x10_0000)];
        // Small ones in a quarter of the first arena, large ones in all of the second, some elsewhere.
        let small = (0x20_0000..0x24_0000).step_by(32);
        let large = (0x80_0000..0x90_0000).step_by(512);
        let others = (0x30_0000..0x31_0000).step_by(64);
        let all = small.chain(large).chain(others);
        let sampled = sample(all, &arenas, 64);
        let of_first = sampled.iter().filter(|&&at| at < 0x30_0000).count();
        assert_eq!(of_first, 8);
        // The last place may be behind the last object.
        assert!((39..=40).contains(&sampled.len()), "{}", sampled.len());
        assert!(
            sampled
                .iter()
                .all(|at| !(0x30_0000..0x80_0000).contains(at))
        );
        assert!(sample(std::iter::empty(), &arenas, 64).is_empty());
        assert!(sample([0x20_0000].into_iter(), &[], 64).is_empty());
    }

    #[test]
    fn objects_that_alternate_are_sampled_alike() {
        let arena = [(0x20_0000, 0x10_0000)];
        for period in [2, 3, 4, 8, 60, 85, 128, 256, 341] {
            let objects = (0x20_0000..0x30_0000).step_by(48);
            let sampled = sample(objects, &arena, 64);
            let is_of_first_half = |at: &&u64| (**at - 0x20_0000) / 48 % period < period / 2;
            let share = sampled.iter().filter(is_of_first_half).count() as f64 / 64.0;
            let expected = (period / 2) as f64 / period as f64;
            assert!((share - expected).abs() < 0.2, "{period}: {share}");
        }
    }
}
