"use strict";
/** The numbers of hidden classes and lambdas, which differ in each run. */
const HIDDEN_NUMBERS = /(\$\$Lambda|\$\$StringConcat|LambdaForm\$[A-Za-z]+)(?:\$?\d+)?(?:[./+]0x[0-9a-f]+)?(?:[./]\d+)?/;
/**
 * Array, packages and the rest of a name that is known to be Java's. A class whose name begins with a lower-case letter needs a
 * method.
 */
const JAVA_NAME = /^((?:\[+L)?)((?:[\p{Ll}_][\p{L}\p{N}_]*[./])+)(?=[\p{Lu}$]|[^./]+\.[^./])(.+)$/u;
/** The same for a name of unknown language: not a path, not C++, without arguments. */
const LIKE_JAVA = /^()((?:[a-z_]\w*[./])+)([A-Z][\w$]*(?:[./+]0x[0-9a-f]+)?(?:[./]\d+)?\.[\w$<>]+(?:_\[\w\])?(?::\d+)?)$/;
const JAVA_KINDS = "tjiNc";

/** Returns array, packages, and class with method of a Java name; null for other names, which are not shortened. */
function javaName(name, kind) {
  if (kind === "k" || kind === "m") return null;
  const isJava = JAVA_KINDS.includes(kind), match = (isJava ? JAVA_NAME : LIKE_JAVA).exec(name);
  if (match) return { array: match[1], packages: match[2], rest: match[3] };
  return isJava ? { array: "", packages: "", rest: name } : null;
}

/**
 * The texts of a box: `whole` ones, longest first, of which the first that fits is shown, and the `method` at the end of a Java
 * name. With `short`, packages become letters if the name does not fit, then class and method remain; with `simple`, only these;
 * with `full`, only the name.
 */
function boxTexts(name, kind, naming) {
  const java = naming === "full" ? null : javaName(name, kind);
  if (!java) return { whole: [name], method: "" };
  const { array, packages, rest } = java, plain = rest.replace(HIDDEN_NUMBERS, "$1");
  const letters = packages.replace(/([\p{L}_])[^./]*([./])/gu, "$1$2"), [, method = ""] = /^[^.]+\.([^.]+)$/.exec(plain) || [];
  const whole = naming === "simple" ? [array + plain] : [name, array + letters + rest, array + letters + plain, array + plain];
  return { whole: [...new Set(whole)], method };
}

/** Ways of naming boxes, in the order in which a key cycles through them. */
const NAMINGS = { short: "packages are shortened to fit", simple: "class and method", full: "full names" };

/** Packages of the JDK. */
const JDK = ["java", "javax", "jdk", "sun", "com.sun"];
/** Returns the origin of a Java name, as in `render/java.rs`: application, library or JDK; "" if it is not Java. */
function originOf(name, kind, application) {
  if (!JAVA_KINDS.includes(kind)) return "";
  const packages = (javaName(name, kind)?.packages || "").replace(/\//g, "."), within = (prefix) => packages.startsWith(prefix + ".");
  if (!packages || application.some(within)) return "application";
  return JDK.some(within) ? "JDK" : "library";
}
