class UpdateStatistics:
    def __init__(self):
        self.n = self.v = 0

    def add(self, res, b, e):
        self.n += len(e)
        self.v += int(res.veto.sum())

    def row(self):
        return dict(tokens=self.n, veto_fraction=self.v / self.n)
