"""Can an estimate be trusted, and how well does it fit?"""
