// Talks to the service: the access token, requests, and the live stream. Knows nothing of the page.

const KEY = "governance.session";

export class Problem extends Error {
  /** An error answer; `body` is the problem document. */
  constructor(status, body) {
    super(body.detail ?? "the service did not answer as expected");
    this.status = status;
    this.body = body;
  }
}

export const session = {
  get value() {
    try {
      const found = JSON.parse(sessionStorage.getItem(KEY));
      return found && found.until > Date.now() ? found : null;
    } catch {
      return null;
    }
  },
  clear: () => sessionStorage.removeItem(KEY),
};

export async function login(email, password) {
  const body = await request("POST", "/auth/login", { email, password });
  const until = Date.now() + body.expiresIn * 1000;
  sessionStorage.setItem(KEY, JSON.stringify({ token: body.accessToken, user: body.user, until }));
}

function headers(extra = {}) {
  const token = session.value?.token;
  return token ? { ...extra, Authorization: `Bearer ${token}` } : extra;
}

/** A request; the answer's JSON. Throws Problem for an error answer, TypeError when the service is away. */
export async function request(method, path, body, signal) {
  const answer = await fetch(path, {
    method,
    signal,
    headers: headers(body === undefined ? {} : { "Content-Type": "application/json" }),
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  const text = await answer.text();
  let value = {};
  try {
    value = text ? JSON.parse(text) : null;
  } catch {
    value = { detail: `the service answered ${answer.status} without an explanation` };
  }
  if (!answer.ok) {
    if (answer.status === 401 && path !== "/auth/login") {
      session.clear();
      dispatchEvent(new Event("governance:logged-out"));
    }
    throw new Problem(answer.status, value ?? {});
  }
  return value;
}

/** Calls `each(event, data)` for every live change until `signal` aborts; `state(live)` says how it is. */
export async function follow(each, state, signal) {
  let pause = 500;
  while (!signal.aborted) {
    try {
      const answer = await fetch("/v1/stream", { headers: headers({ Accept: "text/event-stream" }), signal });
      if (!answer.ok) throw new Error(String(answer.status));
      state(true);
      each("connected", {});
      pause = 500;
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        const blocks = (rest + value).split("\n\n");
        rest = blocks.pop();
        for (const block of blocks) {
          const fields = Object.fromEntries(block.split("\n").map((line) => line.split(/: ?(.*)/s, 2)));
          if (fields.data) each(fields.event ?? "message", JSON.parse(fields.data));
        }
      }
    } catch (error) {
      if (signal.aborted) return;
    }
    state(false);
    await new Promise((resolve) => setTimeout(resolve, pause));
    pause = Math.min(pause * 2, 15000);
  }
}
