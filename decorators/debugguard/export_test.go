package debugguard

// Seals is how many blocks are sealed.
func (r *Resource) Seals() int { return int(r.seals.count.Load()) }
