//! A gateway in Rust, with the faults that such programs have.
//!
//! gateway leak|ok SEED FAULT
use std::{
    cell::RefCell,
    collections::HashMap,
    env,
    rc::Rc,
    sync::{LazyLock, Mutex, mpsc},
    thread,
    time::Duration,
};

static CACHE: LazyLock<Mutex<HashMap<u64, Vec<u8>>>> = LazyLock::new(Default::default);
static AUDIT: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());
static JOURNAL: Mutex<String> = Mutex::new(String::new());

struct Random(u64);

impl Random {
    fn uniform(&mut self, from: u64, to: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        from + (self.0 >> 33) % (to - from + 1)
    }
}

fn body(random: &mut Random) -> Vec<u8> {
    vec![b'b'; random.uniform(3000, 9000) as usize] // allocates: cache, audit, channel, forgotten
}

/// A parent and its child refer to each other.
struct Node {
    text: Vec<u8>,
    other: RefCell<Option<Rc<Node>>>,
}

fn pair(random: &mut Random, leaks: bool) {
    let text = vec![b't'; random.uniform(3000, 9000) as usize]; // allocates: cycle
    let parent = Rc::new(Node { text, other: RefCell::new(None) }); // allocates: cycle
    let child = Rc::new(Node { text: vec![], other: RefCell::new(Some(parent.clone())) }); // allocates: cycle
    *parent.other.borrow_mut() = Some(child);
    if !leaks {
        parent.other.borrow_mut().take();
    }
    std::hint::black_box(parent.text.len());
}

fn main() {
    let arguments: Vec<String> = env::args().collect();
    let leaks = arguments[1] == "leak";
    let mut random = Random(arguments[2].parse().unwrap_or(1));
    let fault = arguments[3].as_str();
    let (jobs, inbox) = mpsc::channel::<Vec<u8>>();
    thread::spawn(move || {
        for job in inbox {
            if leaks {
                thread::sleep(Duration::from_millis(100));
            }
            drop(job);
        }
    });
    for count in 1u64.. {
        match fault {
            "cache" => {
                let key = if leaks { count } else { count % 50 };
                let body = body(&mut random);
                CACHE.lock().unwrap().insert(key, body);
            }
            "audit" => {
                let mut audit = AUDIT.lock().unwrap();
                audit.push(body(&mut random));
                if !leaks {
                    audit.clear();
                }
            }
            "journal" => {
                let mut journal = JOURNAL.lock().unwrap();
                let page = random.uniform(3000, 9000) as usize;
                journal.extend(std::iter::repeat_n('j', page)); // allocates: journal
                if !leaks {
                    journal.clear();
                }
            }
            "cycle" => pair(&mut random, leaks),
            "channel" => {
                let _ = jobs.send(body(&mut random));
            }
            _ => {
                let page = body(&mut random).into_boxed_slice();
                match leaks {
                    true => drop(std::hint::black_box(Box::leak(page))),
                    false => drop(std::hint::black_box(page)),
                };
            }
        }
        std::hint::black_box(vec![1u8; random.uniform(500, 5000) as usize]);
        if count == 200 {
            println!("serving");
        }
        thread::sleep(Duration::from_millis(random.uniform(15, 25)));
    }
}
