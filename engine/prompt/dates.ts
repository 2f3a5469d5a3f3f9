/** A date in local time, in the notation of C's strftime. Throws on a conversion that no template was seen to use. */
export function formatDate(date: Date, format: string): string {
  return format.replace(/%(-?[a-zA-Z%])/g, (_, conversion: string) => {
    const part = PARTS[conversion];
    if (part === undefined) throw new Error(`%${conversion} is not known`);
    return part(date);
  });
}

const two = (value: number): string => `${value}`.padStart(2, '0');
/** Spelled out: a template's dates are made for every prompt, and `Intl` takes longer than all else of a short one. */
const MONTHS = [
  ...['January', 'February', 'March', 'April', 'May', 'June'],
  ...['July', 'August', 'September', 'October', 'November', 'December'],
];
const DAYS = ['Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday'];
const month = (date: Date): string => MONTHS[date.getMonth()] ?? '';
const day = (date: Date): string => DAYS[date.getDay()] ?? '';

function dayOfYear(date: Date): number {
  const [year, days] = [date.getFullYear(), 24 * 60 * 60 * 1000];
  return (Date.UTC(year, date.getMonth(), date.getDate()) - Date.UTC(year, 0, 0)) / days;
}

const PARTS: Readonly<Record<string, (date: Date) => string>> = {
  '%': () => '%',
  Y: (date) => `${date.getFullYear()}`,
  y: (date) => two(date.getFullYear() % 100),
  m: (date) => two(date.getMonth() + 1),
  d: (date) => two(date.getDate()),
  '-d': (date) => `${date.getDate()}`,
  '-m': (date) => `${date.getMonth() + 1}`,
  '-H': (date) => `${date.getHours()}`,
  '-I': (date) => `${date.getHours() % 12 || 12}`,
  '-M': (date) => `${date.getMinutes()}`,
  j: (date) => `${dayOfYear(date)}`.padStart(3, '0'),
  e: (date) => `${date.getDate()}`.padStart(2),
  B: (date) => month(date),
  b: (date) => month(date).slice(0, 3),
  A: (date) => day(date),
  a: (date) => day(date).slice(0, 3),
  H: (date) => two(date.getHours()),
  I: (date) => two(date.getHours() % 12 || 12),
  M: (date) => two(date.getMinutes()),
  S: (date) => two(date.getSeconds()),
  p: (date) => (date.getHours() < 12 ? 'AM' : 'PM'),
};
