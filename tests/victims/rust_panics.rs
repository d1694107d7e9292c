//! Panics that are caught, a known number of times.

use std::hint::black_box;

#[inline(never)]
fn fails(n: u32) -> u32 {
    let small: [u32; 3] = [1, 2, 3];
    small[black_box(n as usize + 3)]
}

fn main() {
    let times: u32 = std::env::args().nth(1).unwrap().parse().unwrap();
    std::panic::set_hook(Box::new(|_| {}));
    let caught = (0..times).filter(|n| std::panic::catch_unwind(|| fails(*n)).is_err()).count();
    assert_eq!(caught as u32, times);
}
