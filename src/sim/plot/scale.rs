//! Pure: no IO, no clock. From values to places between 0 and 1, and the ticks of an axis.

/// How values become places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Equal steps for equal differences.
    Linear,
    /// Equal steps for equal ratios.
    Log,
}

/// About so many ticks.
const TICKS: f64 = 6.0;
/// Never more than this, whatever the values are.
const TICKS_MAX: usize = 12;

/// One axis over a range of values. On a logarithmic one `lo` and `hi` are powers of ten.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Ruler {
    scale: Scale,
    lo: f64,
    hi: f64,
    /// The lowest place means zero.
    zero: bool,
}

impl Ruler {
    /// Holds all values that are finite.
    pub(super) fn over(values: impl Iterator<Item = f64>, scale: Scale) -> Ruler {
        let (mut lo, mut hi, mut zero) = (f64::INFINITY, f64::NEG_INFINITY, false);
        for v in values.filter(|v| v.is_finite()) {
            if scale == Scale::Log && v <= 0.0 {
                zero = true;
            } else {
                (lo, hi) = (lo.min(v), hi.max(v));
            }
        }
        if lo > hi {
            (lo, hi) = if scale == Scale::Log { (1.0, 10.0) } else { (0.0, 1.0) };
        }
        match scale {
            Scale::Linear => Ruler::linear(lo, hi),
            Scale::Log => {
                let (mut lo, mut hi) = (lo.log10().floor(), hi.log10().ceil());
                if lo == hi {
                    hi += 1.0;
                }
                if zero {
                    lo -= 1.0;
                }
                Ruler { scale, lo, hi, zero }
            }
        }
    }

    fn linear(mut lo: f64, mut hi: f64) -> Ruler {
        // An axis that nearly begins at zero begins there.
        if lo > 0.0 && lo < hi * 0.4 {
            lo = 0.0;
        }
        if lo == hi {
            let room = if lo == 0.0 { 1.0 } else { lo.abs() * 0.5 };
            (lo, hi) = (lo - room, hi + room);
        }
        let step = step(hi - lo);
        Ruler {
            scale: Scale::Linear,
            lo: (lo / step).floor() * step,
            hi: (hi / step).ceil() * step,
            zero: false,
        }
    }

    /// Place of a value, 0 to 1.
    pub(super) fn place(&self, value: f64) -> f64 {
        let v = match self.scale {
            Scale::Linear => value,
            Scale::Log if value <= 0.0 => self.lo,
            Scale::Log => value.log10(),
        };
        ((v - self.lo) / (self.hi - self.lo)).clamp(0.0, 1.0)
    }

    /// Places and labels of the ticks, from the lowest.
    pub(super) fn ticks(&self) -> Vec<(f64, String)> {
        let step = match self.scale {
            Scale::Linear => step(self.hi - self.lo),
            Scale::Log => ((self.hi - self.lo) / TICKS).ceil().max(1.0),
        };
        let mut out = Vec::new();
        for k in 0..TICKS_MAX {
            let v = self.lo + step * k as f64;
            if v > self.hi + step * 1e-6 {
                break;
            }
            let label = match self.scale {
                Scale::Linear => number(if v.abs() < step * 1e-6 { 0.0 } else { v }),
                Scale::Log if self.zero && k == 0 => "0".to_owned(),
                Scale::Log => number(10f64.powf(v)),
            };
            out.push((((v - self.lo) / (self.hi - self.lo)).clamp(0.0, 1.0), label));
        }
        out
    }
}

/// 1, 2 or 5 times a power of ten, so that a span has about [`TICKS`] steps.
fn step(span: f64) -> f64 {
    let raw = span / TICKS;
    let power = 10f64.powf(raw.log10().floor());
    let factor = raw / power;
    power
        * if factor <= 1.0 {
            1.0
        } else if factor <= 2.0 {
            2.0
        } else if factor <= 5.0 {
            5.0
        } else {
            10.0
        }
}

/// A number as short as it can be without being wrong at the third digit.
pub(super) fn number(v: f64) -> String {
    if v != 0.0 && !(1e-3..1e6).contains(&v.abs()) {
        return format!("{v:.0e}");
    }
    let text = format!("{v:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(r: &Ruler) -> Vec<String> {
        r.ticks().into_iter().map(|t| t.1).collect()
    }

    #[test]
    fn linear_ticks_are_round_and_hold_the_values() {
        let r = Ruler::over([24.0, 133.0].into_iter(), Scale::Linear);
        assert_eq!(labels(&r), ["0", "50", "100", "150"]);
        assert_eq!((r.place(0.0), r.place(150.0), r.place(75.0)), (0.0, 1.0, 0.5));
        let r = Ruler::over([0.0, 1.0].into_iter(), Scale::Linear);
        assert_eq!(labels(&r), ["0", "0.2", "0.4", "0.6", "0.8", "1"]);
        let one = Ruler::over([7.0].into_iter(), Scale::Linear);
        assert!((0.3..0.7).contains(&one.place(7.0)), "{one:?}");
        let below = Ruler::over([-3.0, 5.0].into_iter(), Scale::Linear);
        assert!(labels(&below).contains(&"0".to_owned()), "{below:?}");
    }

    #[test]
    fn decades_and_a_place_for_zero() {
        let r = Ruler::over([8.0, 41_082.0].into_iter(), Scale::Log);
        assert_eq!(labels(&r), ["1", "10", "100", "1000", "10000", "100000"]);
        assert!((r.place(1000.0) - 0.6).abs() < 1e-9);
        let z = Ruler::over([0.0, 4.0, 90.0].into_iter(), Scale::Log);
        assert_eq!(labels(&z), ["0", "1", "10", "100"]);
        assert_eq!(z.place(0.0), 0.0);
        assert!((z.place(1.0) - 1.0 / 3.0).abs() < 1e-9);
        assert_eq!(labels(&Ruler::over([10.0].into_iter(), Scale::Log)), ["10", "100"]);
    }

    #[test]
    fn absurd_values_give_few_ticks_and_places_within() {
        for values in [[1e-300, 1e300], [f64::NAN, f64::INFINITY], [-1e300, 1e300], [0.0, 0.0]] {
            for scale in [Scale::Linear, Scale::Log] {
                let r = Ruler::over(values.into_iter(), scale);
                let ticks = r.ticks();
                assert!((1..=TICKS_MAX).contains(&ticks.len()), "{values:?} {scale:?}: {ticks:?}");
                assert!(ticks.iter().all(|t| (0.0..=1.0).contains(&t.0)), "{ticks:?}");
            }
        }
    }

    #[test]
    fn numbers_are_short() {
        for (v, text) in [
            (0.0, "0"),
            (24.0, "24"),
            (0.25, "0.25"),
            (1e7, "1e7"),
            (2e-5, "2e-5"),
            (-1.5, "-1.5"),
            (999_999.0, "999999"),
        ] {
            assert_eq!(number(v), text);
        }
    }
}
