// What is on the page of the profiling service, for its tests.

/** What scripts complain of; that a request was answered with an error is said by the browser itself. */
export const complaints = (page) => page.errors.filter((error) => !error.startsWith("Failed to load resource"));
export const visible = (page, text) => page.locator("#targets .target", { hasText: text });
/** The picture in the page, when it has been drawn; one that is on its way takes its place later. */
export async function picture(page) {
  const frame = page.frameLocator("#viewer-frame iframe:not(.coming)");
  await frame.locator("html[data-ready]").waitFor({ state: "attached" });
  return frame;
}
