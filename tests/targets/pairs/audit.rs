//! A service that renders pages.
//! The fault: every page goes into a log that nothing empties.
//!
//! audit leak|ok SEED

use std::{env, thread::sleep, time::Duration};

struct Random(u64);

impl Random {
    fn uniform(&mut self, from: u64, to: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        from + self.0 % (to - from)
    }
}

struct Service {
    log: Vec<String>,
}

impl Service {
    fn render(&self, rows: &[u64], size: usize) -> String {
        let mut page = String::with_capacity(size); // allocates
        while page.len() + 16 < size {
            page.push_str(if rows[page.len() % rows.len()] % 2 == 0 { "<tr/>" } else { "<br/>" });
        }
        page
    }

    fn log(&mut self, page: String) {
        self.log.push(page); // keeps
    }
}

fn main() {
    let arguments: Vec<String> = env::args().collect();
    let leaks = arguments[1] == "leak";
    let mut random = Random(arguments[2].parse::<u64>().unwrap() + 88172645463325252);
    let mut service = Service { log: Vec::new() };
    for request in 0.. {
        let rows: Vec<u64> = (0..random.uniform(2_000, 15_000)).collect();
        let page = service.render(&rows, random.uniform(400, 8_000) as usize);
        if leaks {
            service.log(page); // the fault
        }
        if request == 100 {
            println!("serving");
        }
        sleep(Duration::from_millis(random.uniform(20, 30)));
    }
}
