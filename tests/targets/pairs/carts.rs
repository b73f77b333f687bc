//! Shopping carts by customer.
//! The fault: paying does not remove the cart.
//!
//! carts leak|ok SEED

use std::{collections::HashMap, env, thread::sleep, time::Duration};

struct Random(u64);

impl Random {
    fn uniform(&mut self, from: u64, to: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        from + self.0 % (to - from)
    }
}

struct Shop {
    carts: HashMap<u64, Vec<u32>>,
    leaks: bool,
}

impl Shop {
    fn fill_cart(&self, articles: &[u32], count: usize) -> Vec<u32> {
        let mut cart = Vec::with_capacity(count); // allocates
        cart.extend(articles.iter().take(count));
        cart
    }

    fn open(&mut self, customer: u64, cart: Vec<u32>) {
        self.carts.insert(customer, cart); // keeps
    }

    fn pay(&mut self, customer: u64) -> Option<u32> {
        let total = self.carts.get(&customer)?.iter().sum();
        if !self.leaks {
            self.carts.remove(&customer); // the fault
        }
        Some(total)
    }
}

fn main() {
    let arguments: Vec<String> = env::args().collect();
    let leaks = arguments[1] == "leak";
    let mut random = Random(arguments[2].parse::<u64>().unwrap() + 88172645463325252);
    let mut shop = Shop { carts: HashMap::new(), leaks };
    let mut paid = 0;
    for customer in 0.. {
        let articles: Vec<u32> = (0..random.uniform(4_000, 30_000) as u32).collect();
        let cart = shop.fill_cart(&articles, random.uniform(50, 1_500) as usize);
        shop.open(customer, cart);
        if customer >= 100 {
            paid += shop.pay(customer - 100).map_or(0, u64::from);
        }
        if customer == 300 {
            println!("serving, {paid} paid");
        }
        sleep(Duration::from_millis(random.uniform(15, 25)));
    }
}
