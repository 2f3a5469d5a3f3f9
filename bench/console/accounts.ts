/** Accounts that the bench's sidecars know: as many as the console names. */
export const ACCOUNTS = 20;
