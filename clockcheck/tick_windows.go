package clockcheck

import "time"

// tick is how late a reading of either clock of the host may be: Windows moves
// both on by its timer interrupt, every 15.6 ms unless somebody asked for more.
const tick = 16 * time.Millisecond
