// Numbers as text. Units stand in the headings, once; three significant digits; what is not known is a dash.

export const NONE = "–";

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });

export function number(value) {
  if (value === null || value === undefined) return NONE;
  const size = Math.abs(value);
  if (size >= 100 || size === 0) return whole.format(value);
  if (size >= 0.01) return value.toFixed(size >= 10 ? 1 : size >= 1 ? 2 : 3);
  return size >= 1e-6 ? value.toFixed(2 - Math.floor(Math.log10(size))) : value.toExponential(2);
}

export const count = (value) => (value === null || value === undefined ? NONE : whole.format(value));
export const percent = (share) => {
  if (share === null || share === undefined) return NONE;
  const value = share * 100;
  return value === 0 || value >= 10 ? value.toFixed(0) : value.toFixed(1);
};
export const money = (value) => (value === null || value === undefined ? NONE : number(Number(value)));
export const time = (seconds) => clock.format(new Date(seconds * 1000));

export function age(seconds) {
  if (seconds < 10) return `${Math.max(0, seconds).toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return `${Math.round(seconds / 3600)} h`;
}
