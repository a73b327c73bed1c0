// The simulator itself, as WebAssembly: text in, text out.

const encoder = new TextEncoder();
const decoder = new TextDecoder();

/** A run that cannot be made, in words for who reads the page. */
export class Refused extends Error {}

/** The simulator of the module at `url`. After a trap a new one is made of the same module. */
export async function machine(url) {
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url} is not there (${response.status}); the page is built by ui/simulator/build.sh`);
  const module = await WebAssembly.compile(await response.arrayBuffer());
  let instance;
  const begin = async () => {
    instance = await WebAssembly.instantiate(module, {});
  };
  await begin();
  const answer = (length) => decoder.decode(new Uint8Array(instance.exports.memory.buffer, instance.exports.output(), length));
  const call = async (name, request = {}) => {
    const bytes = encoder.encode(JSON.stringify(request));
    const { exports } = instance;
    const at = exports.input(bytes.length);
    if (at === 0) throw new Refused('That is too long.');
    new Uint8Array(exports.memory.buffer, at, bytes.length).set(bytes);
    try {
      const told = JSON.parse(answer(exports[name]()));
      if (told.error) throw new Refused(told.error);
      return told;
    } catch (error) {
      if (!(error instanceof WebAssembly.RuntimeError) && !(error instanceof RangeError)) throw error;
      let why = error.message;
      try {
        why = answer(exports.last_words()) || why;
      } catch {
        // The memory is as the trap left it.
      }
      await begin();
      throw new Refused(`The simulator broke off: ${why}`);
    }
  };
  const catalogue = await call('catalogue');
  return { catalogue, run: (request) => call('run', request), search: (request) => call('search', request), shrink: (request) => call('shrink', request) };
}
