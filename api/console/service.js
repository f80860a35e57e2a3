// Talks to the service: the session and its access token, and requests. Knows nothing of the page.

/** Where the session is kept: all tabs share it, so that the link in a message opens without another login. */
export const KEY = "governance.session";
const LONGEST = 30_000;

export class Problem extends Error {
  /** An error answer; `body` is the problem document. */
  constructor(status, body) {
    super(body.detail ?? `the service answered ${status} without an explanation`);
    this.status = status;
    this.body = body;
  }
}

export const session = {
  /** `{token, user: {email, role}, until}` while somebody is logged in, else null. */
  get value() {
    try {
      const found = JSON.parse(localStorage.getItem(KEY));
      return found && found.until > Date.now() ? found : null;
    } catch {
      return null;
    }
  },
  set value(session) {
    localStorage.setItem(KEY, JSON.stringify(session));
  },
  clear: () => localStorage.removeItem(KEY),
};

/** For what is sent later: the session of who does it now, whoever is logged in by then. */
export function ownSession() {
  const mine = session.value;
  return () => (session.value?.user.email === mine?.user.email ? session.value : mine);
}

/** The service no longer accepts the session, or its time is over. */
export function lost() {
  session.clear();
  dispatchEvent(new Event("governance:logged-out"));
}

export async function login(email, password) {
  renew((await request("POST", "/auth/login", { email, password })).value);
}

/** Goes on with the token that a login, or a change of the password, has brought. */
export function renew(answer) {
  session.value = { token: answer.accessToken, user: answer.user, until: Date.now() + answer.expiresIn * 1000 };
}

/** After a refusal: the page starts again when the role was changed. */
async function checkUser() {
  const known = session.value;
  const { value: user } = await request("GET", "/v1/me");
  if (known?.token !== session.value?.token || !known || user.role === known.user.role) return;
  session.value = { ...known, user: { email: user.email, role: user.role } };
  dispatchEvent(new Event("governance:changed-user"));
}

export function headers(extra = {}, token = session.value?.token) {
  return token ? { ...extra, Authorization: `Bearer ${token}` } : extra;
}

/**
 * One request: `{value, text, total, next, etag}`: the JSON of the answer, its exact text, X-Total-Count of a list, the
 * cursor of the page that follows, and the state of a thing. A `body` that is text is sent as it is. Options: `ifMatch`, the
 * state that is meant; `longest`, milliseconds that an answer may take; `keepalive`, sent although the page goes; `as`, the
 * session it belongs to. Throws Problem for an error answer, another error when the service is away or too slow.
 */
export async function request(method, path, body, signal, { ifMatch, longest = LONGEST, keepalive = false, as = session.value } = {}) {
  const sent = as?.token;
  const answer = await fetch(path, {
    method,
    signal: AbortSignal.any([AbortSignal.timeout(longest), ...(signal ? [signal] : [])]),
    headers: headers({ ...(body !== undefined && { "Content-Type": "application/json" }), ...(ifMatch && { "If-Match": ifMatch }) }, sent),
    body: body === undefined || typeof body === "string" ? body : JSON.stringify(body),
    cache: "no-store",
    credentials: "omit",
    keepalive,
  });
  const text = await answer.text();
  let value = {};
  try {
    value = text ? JSON.parse(text) : {};
  } catch {
    value = {};
  }
  if (!answer.ok) {
    // A late answer to a token that was replaced meanwhile says nothing of the new one.
    if (answer.status === 401 && path !== "/auth/login" && session.value?.token === sent) lost();
    if (answer.status === 403 && path !== "/v1/me") checkUser().catch(() => {});
    throw new Problem(answer.status, value ?? {});
  }
  // What needs a second admin was not done: whoever asked must not be told that it was.
  if (answer.status === 202 && value.changeId) throw new Problem(202, { ...value, detail: "This waits for another admin, under Changes." });
  return {
    value, text, etag: answer.headers.get("ETag"),
    total: Number(answer.headers.get("X-Total-Count") ?? Number.NaN),
    next: /[?&]cursor=([^&>]+)[^>]*>; rel="next"/.exec(answer.headers.get("Link") ?? "")?.[1] ?? null,
  };
}

/** GET `path`; null when there is nothing of that name. */
export async function find(path, signal) {
  try {
    return await request("GET", path, undefined, signal);
  } catch (error) {
    if (error.status === 404) return null;
    throw error;
  }
}

/** What GET /health tells, also when the service is not well. */
export async function health(signal) {
  try {
    return (await request("GET", "/health", undefined, signal)).value;
  } catch (error) {
    if (error.status === 503) return error.body;
    throw error;
  }
}

/** True when what was asked was kept, for another admin to agree to. */
export const isKept = (error) => error.status === 202;

/** True when an error says that the service is away or unwell, rather than that it refused. */
export function isAway(error) {
  return !(error instanceof Problem) || error.status >= 500;
}
