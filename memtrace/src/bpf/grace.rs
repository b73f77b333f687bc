//! Short grace periods of RCU while probes are removed that are perf events. The kernel removes such probes one after
//! another, and waits for two grace periods or more at each: 200 probes of a process that had ended took 6.3 s on an
//! emulated Linux 5.10, and 0.05 s while its grace periods were expedited.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{LazyLock, Mutex, MutexGuard, PoisonError},
};

/// 1: all grace periods are expedited, by interrupting every processor instead of waiting for it
/// (Documentation/admin-guide/kernel-parameters.txt).
const EXPEDITED: &str = "/sys/kernel/rcu_expedited";

/// Processors that must not be interrupted.
const UNDISTURBED: [&str; 2] = [
    "/sys/devices/system/cpu/isolated",
    "/sys/devices/system/cpu/nohz_full",
];

static OF_KERNEL: LazyLock<Setting> = LazyLock::new(|| Setting {
    path: PathBuf::from(EXPEDITED),
    state: Mutex::default(),
});

/// The setting, which this process may have changed.
struct Setting {
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Probes that need it may exist.
    is_needed: bool,
    users: usize,
    is_changed: bool,
    /// This process is about to end.
    has_ended: bool,
}

/// Grace periods are short while one lives, if probes need that and the kernel lets us.
pub(super) struct Short(&'static Setting);

/// From now on there may be probes that are perf events.
pub(super) fn need_short() {
    OF_KERNEL.lock().is_needed = true;
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
        let may_change = state.is_needed && !state.is_changed && !state.has_ended;
        if may_change && self.is_off() && !has_undisturbed() {
            // A container's /sys may be read-only.
            state.is_changed = fs::write(&self.path, "1").is_ok();
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
        if std::mem::take(&mut state.is_changed)
            && let Err(error) = fs::write(&self.path, "0")
        {
            tracing::warn!(
                "`{}` cannot be set to 0 again: {error}",
                self.path.display()
            );
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

    #[test]
    fn the_last_user_restores_what_the_first_has_changed() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let setting = Setting {
            path: file.path().to_owned(),
            state: Mutex::new(State {
                is_needed: true,
                ..State::default()
            }),
        };
        let value = || fs::read_to_string(file.path()).unwrap();
        fs::write(file.path(), "0\n").unwrap();
        setting.begin();
        setting.begin();
        let during = if has_undisturbed() { "0\n" } else { "1" };
        assert_eq!(value(), during);
        setting.end();
        assert_eq!(value(), during);
        setting.end();
        assert_eq!(value().trim(), "0");
        // Another one's stays.
        fs::write(file.path(), "1\n").unwrap();
        setting.begin();
        setting.end();
        assert_eq!(value(), "1\n");
    }

    #[test]
    fn without_perf_events_nothing_is_changed() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "0\n").unwrap();
        let setting = Setting {
            path: file.path().to_owned(),
            state: Mutex::default(),
        };
        setting.begin();
        assert_eq!(fs::read_to_string(file.path()).unwrap(), "0\n");
        setting.end();
    }
}
