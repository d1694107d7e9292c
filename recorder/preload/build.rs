//! Linker options of the shared object.

fn main() {
    // Resolve everything at load time (no lazy binding in a handler), never unload, and bind the object's own
    // calls to itself.
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
