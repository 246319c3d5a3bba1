// Requests to the server of this page, and the messages that the user sees if one fails.

const KEY = "rayrank-api-key";

export const key = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set: (value) => sessionStorage.setItem(KEY, value),
};

// A message for the user; `needsKey` means that an API key may help.
export class Problem extends Error {
  constructor(message, needsKey = false) {
    super(message);
    this.needsKey = needsKey;
  }
}

// Paths are relative, so that the application can have a route prefix.
export async function get(path, signal) {
  return answer(path, { signal });
}

export async function post(path, body, signal) {
  const headers = { "Content-Type": "application/json" };
  return answer(path, { method: "POST", headers, body: JSON.stringify(body), signal });
}

async function answer(path, options) {
  const headers = { ...options.headers, ...(key.get() ? { Authorization: `Bearer ${key.get()}` } : {}) };
  let response;
  try {
    response = await fetch(path, { ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem("The server cannot be reached. Check that it is running and that you are online, then try again.");
  }
  const body = await response.json().catch(() => null);
  if (response.ok && body !== null) return body;
  throw problem(response, body);
}

function problem(response, body) {
  // Each API has its error message in another field.
  const message = [body?.error?.message, body?.message, body?.error, body?.detail].find((each) => typeof each === "string");
  const wait = response.headers.get("Retry-After");
  switch (response.status) {
    case 401:
      return new Problem(
        key.get()
          ? "The server does not know this API key. Check it and try again."
          : "The server requires an API key. Type yours and try again.",
        true,
      );
    case 413:
      return new Problem(message ?? "The request is too large. Send fewer or shorter passages.");
    case 429:
      return new Problem(`The server is busy. Try again in ${wait ?? "a few"} seconds.`);
    case 503:
      return new Problem("The model is not ready yet. Try again in a few seconds.");
    default:
      return new Problem(message ?? `The server answered with the error ${response.status}. Try again, or look in its log.`);
  }
}
