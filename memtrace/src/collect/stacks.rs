//! Stacks as the kernel side names them → stacks of the recording.
//!
//! Stacks have most of their callers in common, so they are kept as one tree (a calling context
//! tree): a node is a location and the node of its caller. The new parts of a stack go to the store
//! in batches.

use std::sync::Arc;

use memtrace_common::{
    event::COMM,
    unwind::{End, Word},
};

use super::location::{Location, ModuleIndex};
use crate::{
    event::StackId,
    hash::FastMap,
    recording::{LocationId, Node, NodeId, StackRow},
};

/// A stack as the kernel side sent it.
pub(super) struct Walk<'a> {
    pub(super) key: u64,
    /// The program, which gives words of Python their meaning.
    pub(super) image: u64,
    /// Leaf first.
    pub(super) words: &'a [u64],
    pub(super) end: End,
    /// The thread's name, up to the first zero.
    pub(super) comm: [u8; COMM],
    pub(super) owner: Option<Owner>,
}

/// An owner of keys, which die with it: their places belong to it alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Owner {
    /// A program: its Python code.
    Image(u64),
    /// A process: its generated code.
    Process(u32),
}

impl Owner {
    /// The key's owner for a stack of process `tgid`, which runs the program `image`.
    pub(super) fn of(words: &[u64], tgid: u32, image: u64) -> Option<Owner> {
        let mut owner = None;
        for word in words {
            match Word::decode(*word) {
                Some(Word::Absolute(_)) => return Some(Owner::Process(tgid)),
                Some(Word::Python(_)) => owner = Some(Owner::Image(image)),
                _ => {}
            }
        }
        owner
    }
}

/// Additions not yet sent to the store. Each list continues where the previous one ended.
#[derive(Debug, Default)]
pub(super) struct News {
    pub(super) locations: Vec<(LocationId, Location)>,
    /// Number of the first of `nodes`; the others follow.
    pub(super) first_node: NodeId,
    pub(super) nodes: Vec<Node>,
    pub(super) stacks: Vec<StackRow>,
}

/// Additions are sent when there are this many.
const BATCH: usize = 1024;

/// Every distinct stack so far.
#[derive(Debug, Default)]
pub(super) struct StackInterner {
    locations: FastMap<Location, LocationId>,
    /// By id, from 1.
    located: Vec<Location>,
    nodes: FastMap<Node, NodeId>,
    /// By id, from 1.
    tree: Vec<Node>,
    threads: FastMap<[u8; COMM], Thread>,
    by_content: FastMap<(NodeId, End, ThreadId), StackId>,
    /// Innermost nodes by id, from 1.
    leaves: Vec<NodeId>,
    by_key: FastMap<u64, StackId>,
    /// Keys that are forgotten with their owner.
    keys: FastMap<Owner, Vec<u64>>,
    last: Last,
    news: News,
}

/// Number of a thread's name.
type ThreadId = u32;

#[derive(Debug)]
struct Thread {
    id: ThreadId,
    /// `None`: it is empty.
    name: Option<Arc<str>>,
}

/// The outer part of the last stack, which is most often that of the next one as well.
#[derive(Debug, Default)]
struct Last {
    image: u64,
    /// Words and the nodes that they led to, the outermost first. Ends before the first absolute
    /// word, because its meaning may change.
    path: Vec<(u64, NodeId)>,
}

impl StackInterner {
    /// Binds a kernel-side key to its stack. `locate` gives the location of the frame at an index
    /// of the words; `None` for a word that is not a frame of its own.
    pub(super) fn learn(&mut self, walk: &Walk, locate: impl Fn(usize) -> Option<Location>) {
        let leaf = self.leaf(walk, locate);
        let thread = self.thread(walk.comm);
        let next = StackId(next_id(self.leaves.len()));
        let content = (leaf, walk.end, thread);
        let id = *self.by_content.entry(content).or_insert(next);
        if self.by_key.insert(walk.key, id).is_none()
            && let Some(owner) = walk.owner
        {
            self.keys.entry(owner).or_default().push(walk.key);
        }
        if id == next {
            self.leaves.push(leaf);
            self.news.stacks.push(StackRow {
                id,
                node: leaf,
                end: walk.end,
                thread: self.threads[&walk.comm].name.clone(),
            });
        }
    }

    /// A word of Python may have changed its meaning: a code object was reported.
    pub(super) fn forget_last(&mut self) {
        self.last.path.clear();
    }

    /// The keys of an owner that has ended.
    pub(super) fn forget(&mut self, owner: Owner) {
        for key in self.keys.remove(&owner).unwrap_or_default() {
            self.by_key.remove(&key);
        }
    }

    /// Whether it is time for [`StackInterner::take_news`].
    pub(super) fn has_much_news(&self) -> bool {
        self.news.stacks.len() + self.news.nodes.len() >= BATCH
    }

    /// Additions since the last call; `None` if there were none.
    pub(super) fn take_news(&mut self) -> Option<News> {
        // A new node comes with a new stack, and a new location with a new node.
        if self.news.stacks.is_empty() {
            return None;
        }
        let reported = self.tree.len() - self.news.nodes.len();
        self.news.first_node = NodeId(next_id(reported));
        Some(std::mem::take(&mut self.news))
    }

    /// The file whose code called the leaf's file: the first different one on the way out.
    pub(super) fn caller(&self, id: StackId) -> Option<ModuleIndex> {
        let mut node = *self.leaves.get((id.0 as usize).checked_sub(1)?)?;
        let mut leaf = None;
        while node != NodeId::ROOT {
            let Node { parent, location } = self.tree[node.0 as usize - 1];
            let Location::File(module, _) = self.located[location.0 as usize - 1] else {
                return None;
            };
            if *leaf.get_or_insert(module) != module {
                return Some(module);
            }
            node = parent;
        }
        None
    }

    /// The file that the leaf is in.
    pub(super) fn leaf_file(&self, id: StackId) -> Option<ModuleIndex> {
        let node = self.leaves.get((id.0 as usize).checked_sub(1)?)?;
        let node = self.tree.get((node.0 as usize).checked_sub(1)?)?;
        match self.located[node.location.0 as usize - 1] {
            Location::File(module, _) => Some(module),
            _ => None,
        }
    }

    /// The stack that a key stands for; `None` if its record was lost.
    pub(super) fn find(&self, key: u64) -> Option<StackId> {
        self.by_key.get(&key).copied()
    }

    fn leaf(&mut self, walk: &Walk, locate: impl Fn(usize) -> Option<Location>) -> NodeId {
        if self.last.image != walk.image {
            self.last.image = walk.image;
            self.last.path.clear();
        }
        let outermost_first = walk.words.iter().rev();
        let known = self.last.path.iter().zip(outermost_first);
        let shared = known
            .take_while(|((known, _), word)| known == *word)
            .count();
        self.last.path.truncate(shared);
        let mut node = self
            .last
            .path
            .last()
            .map_or(NodeId::ROOT, |(_, node)| *node);
        let mut lasting = true;
        for index in (0..walk.words.len() - shared).rev() {
            let word = walk.words[index];
            if let Some(location) = locate(index) {
                node = self.node(node, location);
            }
            lasting &= !matches!(Word::decode(word), Some(Word::Absolute(_)));
            if lasting {
                self.last.path.push((word, node));
            }
        }
        node
    }

    fn node(&mut self, parent: NodeId, location: Location) -> NodeId {
        let next = LocationId(next_id(self.located.len()));
        let id = *self.locations.entry(location).or_insert(next);
        if id == next {
            self.located.push(location);
            self.news.locations.push((id, location));
        }
        let node = Node {
            parent,
            location: id,
        };
        let next = NodeId(next_id(self.tree.len()));
        let id = *self.nodes.entry(node).or_insert(next);
        if id == next {
            self.tree.push(node);
            self.news.nodes.push(node);
        }
        id
    }

    fn thread(&mut self, comm: [u8; COMM]) -> ThreadId {
        let next = next_id(self.threads.len());
        let thread = self.threads.entry(comm).or_insert_with(|| {
            let name = comm.split(|byte| *byte == 0).next().unwrap_or_default();
            let name = String::from_utf8_lossy(name);
            Thread {
                id: next,
                name: (!name.is_empty()).then(|| name.into()),
            }
        });
        thread.id
    }
}

fn next_id(known: usize) -> u32 {
    u32::try_from(known + 1).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comm(name: &str) -> [u8; COMM] {
        let mut comm = [0; COMM];
        comm[..name.len()].copy_from_slice(name.as_bytes());
        comm
    }

    /// Words that stand for themselves; odd ones are not frames.
    fn learn(
        stacks: &mut StackInterner,
        key: u64,
        words: &[u64],
        end: End,
        thread: &str,
    ) -> StackId {
        let walk = Walk {
            key,
            image: 1,
            words,
            end,
            comm: comm(thread),
            owner: None,
        };
        stacks.learn(&walk, |index| {
            words[index]
                .is_multiple_of(2)
                .then_some(Location::Unmapped(words[index]))
        });
        stacks.find(key).unwrap()
    }

    /// Locations of a stack, the innermost first, as reported to the store.
    fn reported(news: &[News], id: StackId) -> Vec<Location> {
        let nodes: Vec<_> = news.iter().flat_map(|news| &news.nodes).collect();
        let locations: Vec<_> = news.iter().flat_map(|news| &news.locations).collect();
        let mut rows = news.iter().flat_map(|news| &news.stacks);
        let mut node = rows.find(|row| row.id == id).unwrap().node;
        let mut path = Vec::new();
        while node != NodeId::ROOT {
            let Node { parent, location } = *nodes[node.0 as usize - 1];
            let (id, place) = locations[location.0 as usize - 1];
            assert_eq!(*id, location);
            path.push(*place);
            node = parent;
        }
        path
    }

    #[test]
    fn equal_walks_with_different_keys_are_one_stack() {
        let mut stacks = StackInterner::default();
        let words = [2, 4];
        let id = learn(&mut stacks, 10, &words, End::Complete, "main");
        assert_ne!(id, StackId::UNKNOWN);
        assert_eq!(learn(&mut stacks, 11, &words, End::Complete, "main"), id);
        assert_ne!(learn(&mut stacks, 12, &words, End::NoRow, "main"), id);
        assert_ne!(learn(&mut stacks, 13, &words, End::Complete, "other"), id);
        assert_eq!((stacks.find(10), stacks.find(11)), (Some(id), Some(id)));
        assert_eq!(stacks.find(99), None);
    }

    #[test]
    fn each_node_is_reported_once_and_stacks_can_be_rebuilt() {
        let mut stacks = StackInterner::default();
        let mut news = Vec::new();
        // Callers in common, one below another, none in common, the same function twice.
        let walks: [&[u64]; 6] = [
            &[2, 4, 6],
            &[8, 4, 6],
            &[4, 6],
            &[10, 1, 4, 6],
            &[6, 4],
            &[4, 4, 4],
        ];
        let mut ids = Vec::new();
        for (key, words) in (1..).zip(walks) {
            ids.push(learn(&mut stacks, key, words, End::Complete, "main"));
            news.extend(stacks.take_news());
        }
        assert!(stacks.take_news().is_none());
        for (id, words) in ids.into_iter().zip(walks) {
            let frames = words.iter().filter(|word| word.is_multiple_of(2));
            let frames: Vec<_> = frames.map(|word| Location::Unmapped(*word)).collect();
            assert_eq!(reported(&news, id), frames);
        }
        let nodes: usize = news.iter().map(|news| news.nodes.len()).sum();
        assert_eq!(nodes, 3 + 1 + 1 + 2 + 2, "frames that no stack before has");
        let mut next = 1;
        for news in news {
            assert_eq!(news.first_node.0, next);
            next += news.nodes.len() as u32;
        }
    }

    #[test]
    fn words_are_resolved_again_if_they_may_have_changed() {
        let mut stacks = StackInterner::default();
        let learn = |stacks: &mut StackInterner, key, image, word: u64, place| {
            let walk = Walk {
                key,
                image,
                words: &[word],
                end: End::Complete,
                comm: comm("main"),
                owner: None,
            };
            stacks.learn(&walk, |_| Some(Location::Unmapped(place)));
            stacks.find(key).unwrap()
        };
        let absolute = Word::absolute(16);
        let first = learn(&mut stacks, 1, 1, absolute, 7);
        assert_ne!(learn(&mut stacks, 2, 1, absolute, 8), first);
        let first = learn(&mut stacks, 3, 1, 0, 20);
        assert_eq!(learn(&mut stacks, 4, 1, 0, 21), first, "nothing can have");
        assert_ne!(learn(&mut stacks, 5, 2, 0, 22), first, "another program");
        stacks.forget_last();
        assert_ne!(learn(&mut stacks, 6, 2, 0, 23), first);
    }

    #[test]
    fn the_caller_is_the_first_other_file_on_the_way_out() {
        let (a, b) = (ModuleIndex(0), ModuleIndex(1));
        let caller = |places: &[Location]| {
            let mut stacks = StackInterner::default();
            let walk = Walk {
                key: 1,
                image: 1,
                words: &vec![0; places.len()],
                end: End::Complete,
                comm: comm("main"),
                owner: None,
            };
            stacks.learn(&walk, |index| Some(places[index]));
            stacks.caller(StackId(1))
        };
        let file = Location::File;
        assert_eq!(caller(&[file(a, 1), file(a, 2), file(b, 3)]), Some(b));
        assert_eq!(caller(&[file(a, 1), file(a, 2)]), None);
        assert_eq!(
            caller(&[file(a, 1), Location::Unmapped(2), file(b, 3)]),
            None
        );
        assert_eq!(StackInterner::default().caller(StackId::UNKNOWN), None);
    }

    #[test]
    fn threads_have_their_names() {
        let mut stacks = StackInterner::default();
        for (key, name) in (1..).zip(["main", "", "0123456789abcde"]) {
            learn(&mut stacks, key, &[2], End::Complete, name);
        }
        let news = stacks.take_news().unwrap();
        let names: Vec<_> = news
            .stacks
            .iter()
            .map(|row| row.thread.as_deref())
            .collect();
        assert_eq!(names, [Some("main"), None, Some("0123456789abcde")]);
    }

    #[test]
    fn keys_go_with_their_owner_and_stacks_stay() {
        let (file, absolute) = (8, Word::absolute(16));
        let python = Word::python(32);
        assert_eq!(Owner::of(&[file], 7, 1), None);
        assert_eq!(Owner::of(&[file, python], 7, 1), Some(Owner::Image(1)));
        let generated = Owner::of(&[python, absolute], 7, 1);
        assert_eq!(generated, Some(Owner::Process(7)));
        let mut stacks = StackInterner::default();
        let mut learn = |key, owner| {
            let walk = Walk {
                key,
                image: 1,
                words: &[file],
                end: End::Complete,
                comm: comm("main"),
                owner,
            };
            stacks.learn(&walk, |_| Some(Location::Unmapped(8)));
        };
        for key in [1, 1] {
            learn(key, Some(Owner::Image(1)));
        }
        learn(2, generated);
        learn(3, None);
        stacks.forget(Owner::Image(2));
        assert!(stacks.find(1).is_some());
        stacks.forget(Owner::Image(1));
        let found = [1, 2, 3].map(|key| stacks.find(key).is_some());
        assert_eq!(found, [false, true, true]);
        stacks.forget(Owner::Process(7));
        assert_eq!(stacks.find(2), None);
        assert_eq!((stacks.leaves.len(), stacks.keys.len()), (1, 0));
    }
}
