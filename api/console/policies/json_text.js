// Where things stand in JSON text that somebody writes: the line of every value by its pointer, and of the first fault.

const TOKEN = /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null|[{}[\],:]/y;

class Fault extends Error {
  constructor(at, message) {
    super(message);
    this.at = at;
  }
}

/**
 * `{lines, fault}`: `lines` maps the JSON pointer of each value to its line, from 1; `fault` is null, or `{line, message}`
 * of what makes the text no JSON object, such as a member that stands there twice.
 */
export function scan(text) {
  const lines = new Map();
  const starts = [0];
  for (let end = text.indexOf("\n"); end >= 0; end = text.indexOf("\n", end + 1)) starts.push(end + 1);
  const lineOf = (offset) => {
    let [low, high] = [0, starts.length];
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (starts[middle] <= offset) low = middle;
      else high = middle;
    }
    return low + 1;
  };
  let at = 0;
  let from = 0;

  function next(wanted) {
    while (" \t\n\r".includes(text[at]) && at < text.length) at += 1;
    from = at;
    if (at >= text.length) throw new Fault(text.trimEnd().length, `the text ends too early; ${wanted} is missing`);
    TOKEN.lastIndex = at;
    const [token] = TOKEN.exec(text) ?? [];
    if (token === undefined) throw new Fault(at, text[at] === '"' ? "this text does not end, or has a character that must be escaped" : `${wanted} is expected here`);
    at += token.length;
    return token;
  }

  function value(pointer, token) {
    lines.set(pointer, lineOf(from));
    if (token === "{") return members(pointer);
    if (token === "[") return items(pointer);
    if ("}],:".includes(token)) throw new Fault(from, "a value is expected here");
    return undefined;
  }

  function members(pointer) {
    const seen = new Set();
    let token = next("a member or `}`");
    if (token === "}") return;
    for (;;) {
      if (token[0] !== '"') throw new Fault(from, "a name in double quotes is expected here");
      const name = JSON.parse(token);
      if (seen.has(name)) throw new Fault(from, `\`${name}\` stands here twice`);
      seen.add(name);
      if (next("`:`") !== ":") throw new Fault(from, "`:` is expected here");
      value(`${pointer}/${name.replaceAll("~", "~0").replaceAll("/", "~1")}`, next("a value"));
      token = next("`,` or `}`");
      if (token === "}") return;
      if (token !== ",") throw new Fault(from, "`,` or `}` is expected here");
      token = next("a name in double quotes");
    }
  }

  function items(pointer) {
    let token = next("a value or `]`");
    if (token === "]") return;
    for (let number = 0; ; number += 1) {
      value(`${pointer}/${number}`, token);
      token = next("`,` or `]`");
      if (token === "]") return;
      if (token !== ",") throw new Fault(from, "`,` or `]` is expected here");
      token = next("a value");
    }
  }

  try {
    if (next("`{`") !== "{") throw new Fault(from, "a policy is an object: `{` is expected here");
    lines.set("", 1);
    members("");
    const end = text.slice(at);
    if (end.trim()) throw new Fault(at + end.length - end.trimStart().length, "nothing may follow the last `}`");
    return { lines, fault: null };
  } catch (error) {
    if (!(error instanceof Fault)) throw error;
    return { lines, fault: { line: lineOf(error.at), message: error.message } };
  }
}

/** The line of what a pointer of the service is about: of the value, else of the nearest that it is in. */
export function lineAt(lines, pointer) {
  for (let each = pointer; each; each = each.slice(0, each.lastIndexOf("/"))) if (lines.has(each)) return lines.get(each);
  return 1;
}
