/** The accounts of the bench’s sidecars: as many as the console names. */
export const ACCOUNTS = 20;
