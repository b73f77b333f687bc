//! A process seen from outside: its mappings, the files behind them, what
//! those files define and in which order the loader asks them, what it uses;
//! and launching one. Attaching probes and following are not done here.

pub mod elf;
pub mod files;
pub mod launch;
pub mod link_order;
pub mod maps;
pub mod memory;
