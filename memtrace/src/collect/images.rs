//! Tracks which processes run which program (an image: one exec, and the children forked since), so
//! that the state kept for a program's code is dropped with the last of them.

use std::collections::HashMap;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Images {
    /// By tgid.
    of: HashMap<u32, u64>,
    /// Processes that run an image.
    users: HashMap<u64, u32>,
}

impl Images {
    /// A process runs this image. Returns the image that no process runs any more because of that,
    /// if there is one.
    pub(super) fn runs(&mut self, tgid: u32, image: u64) -> Option<u64> {
        if self.of.get(&tgid) == Some(&image) {
            return None;
        }
        let gone = self.left(tgid);
        self.of.insert(tgid, image);
        *self.users.entry(image).or_default() += 1;
        gone.filter(|gone| *gone != image)
    }

    /// A child runs the same image as its parent.
    pub(super) fn forked(&mut self, parent: u32, child: u32) -> Option<u64> {
        match self.of.get(&parent).copied() {
            Some(image) => self.runs(child, image),
            None => self.left(child),
        }
    }

    /// A process has ended, or executes another program. Returns its image if no process runs it
    /// any more.
    pub(super) fn left(&mut self, tgid: u32) -> Option<u64> {
        let image = self.of.remove(&tgid)?;
        let users = self.users.get_mut(&image)?;
        *users -= 1;
        if *users > 0 {
            return None;
        }
        self.users.remove(&image);
        Some(image)
    }
}

#[cfg(test)]
impl Images {
    /// Processes and images.
    pub(super) fn len(&self) -> usize {
        self.of.len() + self.users.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_gone_with_its_last_process() {
        let mut images = Images::default();
        assert_eq!(images.runs(1, 10), None);
        assert_eq!(images.runs(1, 10), None);
        assert_eq!(images.forked(1, 2), None);
        assert_eq!(images.forked(1, 3), None);
        assert_eq!(images.left(1), None);
        assert_eq!(images.runs(2, 20), None, "3 still runs it");
        assert_eq!(images.left(3), Some(10));
        assert_eq!(images.left(3), None);
        assert_eq!(images.runs(2, 30), Some(20));
        assert_eq!(images.forked(9, 2), Some(30), "of 9 nothing is known");
        assert_eq!(images.len(), 0);
    }
}
