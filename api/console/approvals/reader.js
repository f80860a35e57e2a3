// Reads approvals: one by its id, and the page that a view shows.

/** `focusedId` is that of the link; `signal` ends all requests. */
export function makeReader(service, signal, focusedId) {
  /** Which rows are read: `before` so many, from `cursor` on; `next` is where those behind them begin. */
  let at = { of: "", cursor: null, next: null, before: 0, count: 0 };
  const get = (path) => service.request("GET", path, undefined, signal);

  /** The approval as `{approvalId, text, approval}`; `approval` null when there is none of this id. */
  async function find(approvalId, seen = document.hasFocus()) {
    try {
      const { text, value } = await get(`/v1/approvals/${encodeURIComponent(approvalId)}?seen=${seen}`);
      return { approvalId, text, approval: value };
    } catch (error) {
      if (error.status === 404) return { approvalId, text: "", approval: null };
      throw error;
    }
  }

  /** The rows of a page with that of the link at their head, also when it would come on a later page. */
  async function focusedFirst(page, one, limit) {
    let linked = page.find((each) => each.approvalId === focusedId);
    if (!linked && page.length >= limit) linked = (one?.approvalId === focusedId ? one : await find(focusedId)).approval;
    return linked?.status === "pending" ? [linked, ...page.filter((each) => each !== linked)] : page;
  }

  /**
   * `{found, before, rest, total, waiting, one}`: rows of what is `sought`, how many are before and behind them, of how many,
   * how many wait in all, and the approval `looking`.
   */
  async function page(view, limit, looking, sought) {
    const pending = view === "pending";
    const of = JSON.stringify([view, sought]);
    if (of !== at.of) at = { of, cursor: null, next: null, before: 0, count: 0 };
    const here = at;
    const query = new URLSearchParams([...(view === "all" ? [] : [["status", view]]), ["order", pending ? "asc" : "desc"], ["limit", limit],
      ...(here.cursor ? [["cursor", here.cursor]] : []), ...sought]);
    const [rows, one, waiting] = await Promise.all([
      get(`/v1/approvals?${query}`),
      looking ? find(looking) : null,
      pending && !sought.length ? null : get("/v1/approvals?status=pending&limit=1"),
    ]);
    [here.next, here.count] = [rows.next, rows.value.length];
    const found = pending && focusedId && !sought.length && !here.cursor ? await focusedFirst(rows.value, one, limit) : rows.value;
    const rest = rows.next ? Math.max(0, rows.total - here.before - found.length) : 0;
    return { found, one, before: here.before, rest, total: rows.total, waiting: (waiting ?? rows).total };
  }

  /** From now on those behind the rows of the last page, or from the first on. */
  function turn(onwards) {
    if (!onwards) at = { ...at, cursor: null, before: 0 };
    else if (at.next) at = { ...at, cursor: at.next, next: null, before: at.before + at.count };
  }

  return { find, page, turn };
}
