//! How the shared object is linked.

fn main() {
    // Everything resolved at load time (no lazy binding in a handler), never unloaded, own calls stay inside.
    for arg in [
        "-Wl,-z,now",
        "-Wl,-z,nodelete",
        "-Wl,-z,start-stop-visibility=hidden",
        "-Wl,-Bsymbolic",
        "-Wl,-soname,libflightline.so",
        "-lc",
    ] {
        println!("cargo::rustc-cdylib-link-arg={arg}");
    }
    println!("cargo::rerun-if-changed=build.rs");
}
