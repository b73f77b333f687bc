//! Short grace periods of RCU while probes are removed that are perf events. The kernel removes such probes one after
//! another, and waits for two grace periods or more at each: 200 probes of a process that had ended took 6.3 s on an
//! emulated Linux 5.10, and 0.05 s while its grace periods were expedited.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::{LazyLock, Mutex, MutexGuard, PoisonError},
};

/// 1: all grace periods are expedited, by interrupting every processor instead of waiting for it
/// (Documentation/admin-guide/kernel-parameters.txt).
const EXPEDITED: &str = "/sys/kernel/rcu_expedited";

/// Locked by the process that has changed the setting. If it is killed, the next one finds the file unlocked.
const MARK: &str = "/run/memtrace.rcu_expedited";

/// Processors that must not be interrupted.
const UNDISTURBED: [&str; 2] = [
    "/sys/devices/system/cpu/isolated",
    "/sys/devices/system/cpu/nohz_full",
];

static OF_KERNEL: LazyLock<Setting> = LazyLock::new(|| Setting {
    path: PathBuf::from(EXPEDITED),
    mark: PathBuf::from(MARK),
    state: Mutex::default(),
});

/// The setting, which this process may have changed.
struct Setting {
    path: PathBuf,
    mark: PathBuf,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Probes that need it may exist.
    is_needed: bool,
    users: usize,
    /// The mark, locked, while the setting is changed.
    mark: Option<File>,
    /// This process is about to end.
    has_ended: bool,
}

/// Grace periods are short while one lives, if probes need that and the kernel lets us.
pub(super) struct Short(&'static Setting);

/// From now on there may be probes that are perf events.
pub(super) fn need_short() {
    OF_KERNEL.lock().is_needed = true;
    OF_KERNEL.recover();
}

pub(super) fn shorten() -> Short {
    OF_KERNEL.begin();
    Short(&OF_KERNEL)
}

/// Restores the setting before this process ends without destructors.
pub(super) fn restore() {
    let mut state = OF_KERNEL.lock();
    state.has_ended = true;
    OF_KERNEL.restore(&mut state);
}

impl Drop for Short {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Setting {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self) {
        let mut state = self.lock();
        state.users += 1;
        let may_change = state.is_needed && state.mark.is_none() && !state.has_ended;
        if may_change && self.is_off() && !has_undisturbed() {
            // A container's /sys and /run may be read-only.
            state.mark = self.change().ok();
        }
    }

    /// Changes the setting and returns the mark, if no other process has changed it.
    fn change(&self) -> io::Result<File> {
        let mut options = File::options();
        let options = options.write(true).create(true).truncate(false).mode(0o600);
        let mark = options.open(&self.mark)?;
        mark.try_lock()?;
        fs::write(&self.path, "1")?;
        Ok(mark)
    }

    /// Restores the setting if a process was killed that had changed it.
    fn recover(&self) {
        if let Ok(mark) = File::open(&self.mark)
            && mark.try_lock().is_ok()
        {
            self.restore_marked();
        }
    }

    fn end(&self) {
        let mut state = self.lock();
        state.users -= 1;
        if state.users == 0 {
            self.restore(&mut state);
        }
    }

    fn restore(&self, state: &mut State) {
        // Unlocked at the end.
        if let Some(_mark) = state.mark.take() {
            self.restore_marked();
        }
    }

    fn restore_marked(&self) {
        match fs::write(&self.path, "0") {
            // Another process may find the mark and restore the setting once more.
            Ok(()) => drop(fs::remove_file(&self.mark)),
            Err(error) => tracing::warn!(
                "`{}` cannot be set to 0 again: {error}",
                self.path.display()
            ),
        }
    }

    fn is_off(&self) -> bool {
        fs::read_to_string(&self.path).is_ok_and(|value| value.trim() == "0")
    }
}

fn has_undisturbed() -> bool {
    let lists = UNDISTURBED.iter().map(Path::new).map(fs::read_to_string);
    // An empty list is an empty line or `(null)`.
    lists
        .flatten()
        .any(|list| list.contains(|c: char| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(folder: &Path, is_needed: bool) -> Setting {
        fs::write(folder.join("setting"), "0\n").unwrap();
        Setting {
            path: folder.join("setting"),
            mark: folder.join("mark"),
            state: Mutex::new(State {
                is_needed,
                ..State::default()
            }),
        }
    }

    /// The setting while it is changed, unless this machine has processors that must not be interrupted.
    fn changed() -> &'static str {
        if has_undisturbed() { "0\n" } else { "1" }
    }

    #[test]
    fn the_last_user_restores_what_the_first_has_changed() {
        let folder = tempfile::tempdir().unwrap();
        let setting = setting(folder.path(), true);
        let value = || fs::read_to_string(&setting.path).unwrap();
        setting.begin();
        setting.begin();
        assert_eq!(value(), changed());
        setting.end();
        assert_eq!(value(), changed());
        setting.end();
        assert_eq!(value().trim(), "0");
        assert!(!setting.mark.exists());
        // Another one's stays.
        fs::write(&setting.path, "1\n").unwrap();
        setting.begin();
        setting.end();
        assert_eq!(value(), "1\n");
    }

    #[test]
    fn without_perf_events_nothing_is_changed() {
        let folder = tempfile::tempdir().unwrap();
        let setting = setting(folder.path(), false);
        setting.begin();
        assert_eq!(fs::read_to_string(&setting.path).unwrap(), "0\n");
        setting.end();
    }

    #[test]
    fn what_a_killed_process_has_changed_is_restored() {
        let folder = tempfile::tempdir().unwrap();
        let setting = setting(folder.path(), true);
        let value = || fs::read_to_string(&setting.path).unwrap();
        let mark = setting.change().unwrap();
        setting.recover();
        assert_eq!(value(), "1", "its process lives");
        drop(mark);
        setting.recover();
        assert_eq!(value(), "0");
        assert!(!setting.mark.exists());
    }
}
