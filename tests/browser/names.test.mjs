// Names on boxes and colours of Java code in the page of a flame graph. Run by run.sh, which sets RENDER.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import vm from "node:vm";
import { colour, details, drawn, open, opened, recorded, settled } from "./flame.mjs";
import { visit } from "./page.mjs";

const { boxTexts, originOf } = vm.runInNewContext(readFileSync(join(process.env.RENDER, "flame/names.js"), "utf8") + "\n({ boxTexts, originOf })");
const texts = (name, kind = "j", naming = "short") => [...boxTexts(name, kind, naming).whole];
const method = (name, kind = "j", naming = "short") => boxTexts(name, kind, naming).method;

test("packages of Java names are shortened first, then omitted", () => {
  assert.deepEqual(texts("com.acme.shop.backend.App.fib"), ["com.acme.shop.backend.App.fib", "c.a.s.b.App.fib", "App.fib"]);
  assert.deepEqual(texts("java/util/HashMap.get"), ["java/util/HashMap.get", "j/u/HashMap.get", "HashMap.get"]);
  assert.deepEqual(texts("com.acme.App.fib", "j", "simple"), ["App.fib"]);
  assert.deepEqual(texts("com.acme.App.fib", "j", "full"), ["com.acme.App.fib"]);
  assert.equal(method("com.acme.App.fib"), "fib");
  assert.equal(method("com.acme.App.fib", "j", "full"), "");
  // Without package; a class that begins with a small letter; packages with capitals.
  assert.deepEqual(texts("Work.main"), ["Work.main"]);
  assert.deepEqual(texts("scala.runtime.package.run"), ["scala.runtime.package.run", "s.r.package.run", "package.run"]);
  assert.deepEqual(texts("com.ACME.App.run"), ["com.ACME.App.run", "c.ACME.App.run", "ACME.App.run"]);
});

test("lambdas, hidden classes, inner classes, constructors and arrays stay recognisable", () => {
  assert.deepEqual(texts("Work$$Lambda.0x0000000057045c00.run"), ["Work$$Lambda.0x0000000057045c00.run", "Work$$Lambda.run"]);
  assert.deepEqual(texts("com.acme.App$$Lambda$14+0x00007f5669008000.1625082366.run"),
    ["com.acme.App$$Lambda$14+0x00007f5669008000.1625082366.run", "c.a.App$$Lambda$14+0x00007f5669008000.1625082366.run", "c.a.App$$Lambda.run", "App$$Lambda.run"]);
  assert.deepEqual(texts("com.acme.App$$Lambda/0x00007f0c.run").at(-1), "App$$Lambda.run");
  assert.deepEqual(texts("java.lang.invoke.LambdaForm$DMH.0x000000080.invokeStatic").at(-1), "LambdaForm$DMH.invokeStatic");
  assert.deepEqual(texts("com.acme.App.lambda$run$0"), ["com.acme.App.lambda$run$0", "c.a.App.lambda$run$0", "App.lambda$run$0"]);
  assert.deepEqual(texts("java.util.HashMap$Node.<init>").slice(1), ["j.u.HashMap$Node.<init>", "HashMap$Node.<init>"]);
  assert.deepEqual(texts("java.util.HashMap$Node[]").slice(1), ["j.u.HashMap$Node[]", "HashMap$Node[]"]);
  assert.deepEqual(texts("[Ljava.lang.Object;").slice(1), ["[Lj.l.Object;", "[LObject;"]);
  for (const name of ["byte[]", "[B", "Object[]"]) assert.deepEqual(texts(name), [name]);
});

test("native names and paths are never shortened", () => {
  for (const name of [
    "std::vector<int, std::allocator<int> >::push_back(int const&)", "AccessInternal::PostRuntimeDispatch<A, (B)2, 5ul>::oop_access_barrier", "foo.constprop.0", "f.part.0.cold",
    "/usr/lib/x86_64-linux-gnu/libc.so.6", "libjvm.so", "usr/lib/Foo/bar.py", "<core::iter::Map<I,F> as Iterator>::next", "runtime.mallocgc", "net/http.(*conn).serve",
    "encoding/json.Marshal", "json.decoder.decode", "main", "[unknown]", "",
  ]) {
    for (const kind of ["n", "k", "u", "J", "o", "m"]) for (const naming of ["short", "simple", "full"]) assert.deepEqual([...texts(name, kind, naming), method(name, kind, naming)], [name, ""], `${name} ${kind}`);
  }
  // Folded text without kinds.
  assert.deepEqual(texts("com/acme/App.run", "u"), ["com/acme/App.run", "c/a/App.run", "App.run"]);
  assert.deepEqual(texts("com.acme.App.run", "k"), ["com.acme.App.run"]);
});

test("the origin of a class equals that of render/java.rs", () => {
  for (const [name, expected] of [
    ["com.acme.shop.App.fib", "application"], ["com/acme/App.fib_[j]", "application"], ["Work.main", "application"], ["Work$$Lambda.0x0000000057045c00.run", "application"],
    ["com.acmeish.App.fib", "library"], ["org.springframework.web.Filter$1.run", "library"], ["com.sunny.App.run", "library"], ["java.util.HashMap$Node[]", "JDK"],
    ["[Ljava.lang.Object;", "JDK"], ["jdk.proxy2.$Proxy5.run", "JDK"], ["com.sun.net.httpserver.Filter.run", "JDK"], ["java/lang/Thread.run", "JDK"],
  ]) assert.equal(originOf(name, "j", ["com.acme"]), expected, name);
  assert.equal(originOf("java.lang.Thread.run", "n", ["com.acme"]), "");
});

/** Opens a page and collects the texts that it draws. */
async function written(file, hash = "") {
  const page = await visit(file, "light", hash, {
    prepare: (page) => page.addInitScript(() => {
      window.written = new Set();
      const { fillText } = CanvasRenderingContext2D.prototype;
      CanvasRenderingContext2D.prototype.fillText = function (text, ...place) { window.written.add(text); return fillText.call(this, text, ...place); };
    }),
  });
  await page.waitForFunction(() => "ready" in document.documentElement.dataset);
  await settled(page);
  page.texts = () => page.evaluate(() => { const all = [...window.written]; window.written.clear(); return all; });
  return page;
}

test("narrow boxes show the end of a Java name, and a key switches between short, simple and full names", async () => {
  const file = drawn("com/acme/shop/backend/App.fibonacci_[j] 100\norg/library/Filter.doFilter_[j] 100\njava/util/HashMap.putTreeValues_[j] 38\nwide_native_function_of_a_library 36\n", ["--title", "x"]);
  const page = await written(file);
  let texts = await page.texts();
  for (const text of ["com/acme/shop/backend/App.fibonacci_[j]", "org/library/Filter.doFilter_[j]"]) assert.ok(texts.includes(text), `${text} in ${texts}`);
  assert.ok(texts.some((text) => /^…\w+\.putTreeValues_\[j\]$/.test(text)), `${texts}`);
  assert.ok(texts.some((text) => text.startsWith("wide_native") && text.endsWith("…")), `${texts}`);
  await page.keyboard.press("j");
  assert.equal(await details(page), "Names on boxes: simple (class and method)");
  await settled(page);
  texts = await page.texts();
  for (const text of ["App.fibonacci_[j]", "Filter.doFilter_[j]"]) assert.ok(texts.includes(text), `${text} in ${texts}`);
  assert.match(await page.evaluate(() => location.hash), /names=simple/);
  await page.keyboard.press("j");
  await settled(page);
  texts = await page.texts();
  assert.ok(texts.includes("com/acme/shop/backend/App.fibonacci_[j]") && texts.some((text) => text.startsWith("java/util/") && text.endsWith("…")), `${texts}`);
  await page.keyboard.press("j");
  assert.doesNotMatch(await page.evaluate(() => location.hash), /names/);
  const chart = await written(recorded("jdk25.jfr"), "#view=chart&names=simple&event=jdk.ExecutionSample");
  texts = await chart.texts();
  assert.ok(texts.includes("Thread.run") && !texts.some((text) => text.includes("java.lang")), `${texts}`);
  await chart.keyboard.press("?");
  assert.match(await chart.locator("#keys").textContent(), /Java names on boxes/);
  const odd = await written(file, "#names=nonsense");
  assert.ok((await odd.texts()).includes("com/acme/shop/backend/App.fibonacci_[j]"));
  assert.deepEqual([...page.errors, ...chart.errors, ...odd.errors], []);
});

const legend = async (page) => (await page.locator("#legend span").allTextContents()).sort();

test("interpreted, compiled, inlined, native and kernel code differ in colour", async () => {
  const page = await open("a/A.a_[0] 1\nb/B.b_[j] 1\nc/C.c_[i] 1\nd_[k] 1\nuser 1\n");
  const colours = [];
  for (let i = 0; i < 5; i++) colours.push(await colour(page, (i + 0.9) / 5, 1));
  for (let i = 0; i < 5; i++) {
    for (let k = 0; k < i; k++) assert.ok(colours[i].reduce((sum, part, at) => sum + Math.abs(part - colours[k][at]), 0) > 60, `${colours[k]} and ${colours[i]}`);
  }
  const [interpreted, compiled, inlined] = colours;
  assert.ok(interpreted.every((part, at) => part >= compiled[at]), `pale: ${interpreted}`);
  assert.ok(compiled[1] > compiled[0] + 30 && compiled[1] > compiled[2] + 30, `green: ${compiled}`);
  assert.ok(inlined[2] > inlined[0] + 30 && inlined[1] > inlined[0] + 30, `aqua: ${inlined}`);
  // As recordings of a JDK and of async-profiler state it.
  const jdk = await opened(recorded("jdk25.jfr"));
  assert.deepEqual(await legend(jdk), ["JIT-compiled", "inlined", "interpreted", "native"]);
  await jdk.selectOption("#event", "jdk.NativeMethodSample");
  assert.ok((await legend(jdk)).includes("native"));
  const profiler = await opened(recorded("ap-java-multichunk.jfr"));
  assert.deepEqual(await legend(profiler), ["C++ and Rust", "JIT-compiled", "inlined", "interpreted", "kernel", "native"]);
  assert.deepEqual([...page.errors, ...jdk.errors, ...profiler.errors], []);
});

test("a palette separates application, library and JDK", async () => {
  const STACKS = "com/acme/App.a_[j] 3\njava/lang/Thread.run_[j] 1\nnative 1\norg/library/Filter.b_[j] 2\n";
  const seen = async (args) => {
    const page = await open(STACKS, args, "light", "#palette=origin"), colours = [];
    for (const x of [0.2, 0.5, 0.65, 0.9]) colours.push(await colour(page, x, 1));
    assert.deepEqual(page.errors, []);
    return { colours, legend: await legend(page) };
  };
  const { colours: [application, jdk, native, library], legend: entries } = await seen([]);
  assert.ok(application[0] > application[2] + 60, `orange: ${application}`);
  assert.ok(jdk[1] > jdk[0] && jdk[1] > jdk[2], `green: ${jdk}`);
  assert.ok(Math.max(...native) - Math.min(...native) < 25, `grey: ${native}`);
  assert.ok(library[2] > library[0] + 40, `blue: ${library}`);
  assert.deepEqual(entries, ["JDK", "application (com.acme)", "library", "not Java"]);
  const other = await seen(["--application", "org.library"]);
  assert.ok(other.colours[3][0] > other.colours[3][2] + 60 && other.colours[0][2] > other.colours[0][0] + 40);
  assert.ok(other.legend.includes("application (org.library)"));
});
