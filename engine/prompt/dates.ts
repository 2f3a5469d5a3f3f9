/** A date in local time, in the notation of C's strftime. Throws on a conversion that no template was seen to use. */
export function formatDate(date: Date, format: string): string {
  return format.replace(/%(-?[a-zA-Z%])/g, (_, conversion: string) => {
    const part = PARTS[conversion];
    if (part === undefined) throw new Error(`%${conversion} is not known`);
    return part(date);
  });
}

const two = (value: number): string => `${value}`.padStart(2, '0');
const english = (date: Date, options: Intl.DateTimeFormatOptions): string => date.toLocaleDateString('en-US', options);

const PARTS: Readonly<Record<string, (date: Date) => string>> = {
  '%': () => '%',
  Y: (date) => `${date.getFullYear()}`,
  y: (date) => two(date.getFullYear() % 100),
  m: (date) => two(date.getMonth() + 1),
  d: (date) => two(date.getDate()),
  '-d': (date) => `${date.getDate()}`,
  e: (date) => `${date.getDate()}`.padStart(2),
  B: (date) => english(date, { month: 'long' }),
  b: (date) => english(date, { month: 'short' }),
  A: (date) => english(date, { weekday: 'long' }),
  a: (date) => english(date, { weekday: 'short' }),
  H: (date) => two(date.getHours()),
  I: (date) => two(date.getHours() % 12 || 12),
  M: (date) => two(date.getMinutes()),
  S: (date) => two(date.getSeconds()),
  p: (date) => (date.getHours() < 12 ? 'AM' : 'PM'),
};
