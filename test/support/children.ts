import { readdir, readFile } from 'node:fs/promises';

/** This process's children whose command line holds `text`. Linux alone. */
export async function childrenRunning(text: string): Promise<number[]> {
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name));
  const found = await Promise.all(pids.map(async (pid) => ((await isChild(pid, text)) ? [Number(pid)] : [])));
  return found.flat();
}

async function isChild(pid: string, text: string): Promise<boolean> {
  try {
    const [stat, command] = await Promise.all([
      readFile(`/proc/${pid}/stat`, 'utf8'),
      readFile(`/proc/${pid}/cmdline`, 'utf8'),
    ]);
    // After the name, which may hold anything: state, parent.
    const parent = stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1];
    return parent === String(process.pid) && command.includes(text);
  } catch {
    // It ended meanwhile.
    return false;
  }
}
