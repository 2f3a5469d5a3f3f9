import type { Exchange } from './exchange.js';

/**
 * Handles one exchange, now or later. If it throws or rejects, the caller gets a 500 or, within a stream, one error
 * frame.
 */
export type Handler = (exchange: Exchange) => void | Promise<void>;

/** HEAD is answered by GET's handler without its body, OPTIONS by the server. */
export type Method = 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';

/** Exact path -> method -> handler. A path that ends in `{…}` matches all longer paths with the same beginning. */
export type Routes = Readonly<Record<string, Readonly<Partial<Record<Method, Handler>>>>>;

/** What is served at one path. */
export interface Route {
  readonly path: string;
  readonly handlers: ReadonlyMap<string, Handler>;
  /** The value of Allow. */
  readonly allow: string;
}

/** Finds the route of a path. */
export class RouteTable {
  readonly #exact: ReadonlyMap<string, Route>;
  /** Routes that match many paths, by the beginning of these paths. */
  readonly #open: readonly (readonly [beginning: string, route: Route])[];

  constructor(routes: Routes) {
    this.#exact = new Map(Object.entries(routes).map(([path, handlers]) => [path, route(path, handlers)]));
    this.#open = [...this.#exact.values()].flatMap((each) =>
      each.path.endsWith('}') ? [[each.path.slice(0, each.path.lastIndexOf('{')), each] as const] : [],
    );
  }

  /** Undefined: nothing is served there. */
  find(path: string): Route | undefined {
    return (
      this.#exact.get(path) ??
      this.#open.find(([beginning]) => path.length > beginning.length && path.startsWith(beginning))?.[1]
    );
  }
}

function route(path: string, handlers: Routes[string]): Route {
  const table = new Map(Object.entries(handlers));
  const allow = [...table.keys(), ...(table.has('GET') ? ['HEAD'] : []), 'OPTIONS'].join(', ');
  return { path, handlers: table, allow };
}
