//! Documents as trees of nodes.
//! The fault: a node's link to its parent is counted as an owner.
//!
//! document leak|ok SEED

use std::{
    cell::RefCell,
    env,
    rc::{Rc, Weak},
    thread::sleep,
    time::Duration,
};

struct Random(u64);

impl Random {
    fn uniform(&mut self, from: u64, to: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        from + self.0 % (to - from)
    }
}

struct Node {
    text: String,
    first_child: RefCell<Option<Rc<Node>>>,
    parent: RefCell<Weak<Node>>,
    owner: RefCell<Option<Rc<Node>>>,
}

fn make_node(size: usize) -> Rc<Node> {
    let text = "x".repeat(size); // allocates
    let node = Node { text, first_child: RefCell::default(), parent: RefCell::default(), owner: RefCell::default() };
    Rc::new(node) // allocates
}

fn parse(sizes: &[u64], leaks: bool) -> Rc<Node> {
    let (root, child) = (make_node(sizes[0] as usize), make_node(sizes[1] as usize));
    *root.first_child.borrow_mut() = Some(child.clone());
    *child.parent.borrow_mut() = Rc::downgrade(&root);
    if leaks {
        *child.owner.borrow_mut() = Some(root.clone()); // the fault
    }
    root
}

fn main() {
    let arguments: Vec<String> = env::args().collect();
    let leaks = arguments[1] == "leak";
    let mut random = Random(arguments[2].parse::<u64>().unwrap() + 88172645463325252);
    let mut length = 0;
    for number in 0.. {
        let sizes: Vec<u64> = (0..random.uniform(2_000, 12_000)).map(|_| random.uniform(300, 6_000)).collect();
        length += parse(&sizes, leaks).text.len();
        if number == 100 {
            println!("parsing, {length} bytes");
        }
        sleep(Duration::from_millis(random.uniform(30, 50)));
    }
}
