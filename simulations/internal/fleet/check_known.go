package fleet

// missingVersion says that a region knows another budget by a version than etcd has. While an etcd that was put back is not
// noticed, a version may be given out twice; once all has come right, one version is one budget, everywhere.
func (f *fleet) missingVersion(say func(string, ...any)) {
	for _, r := range f.regions {
		for _, b := range r.db.Budgets() {
			v := f.check.budgets[b.Budget.Name]
			if v != nil && v.doc.Version == b.Version && !v.doc.Lost && v.doc.Budget.LimitOrZero() != b.Budget.LimitOrZero() {
				say("%s knows version %d of %s with limit %d, and it is %d", r.name, b.Version, b.Budget.Name, b.Budget.LimitOrZero(), v.doc.Budget.LimitOrZero())
			}
		}
	}
}
