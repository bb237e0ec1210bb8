"""The words and sentence patterns of ToyWorld, as plain data; `toyworld.py` reads them.

TABLES has a table for each kind of thing. Its first line names the fields; records follow, the
commonest first, one a line or separated by "|". A comma separates options, of which a sentence
takes one. Two fields come of themselves: `a`, the article of the first field, and for a record
with `he` also `him` and `his`.

A pattern is a weight and a sentence. "9 {country.capital} is the capital of {country} ." draws a
country and writes two of its fields, `{country}` being the first. A kind that a pattern names
twice is the same record both times.
"""

TABLES = {
    "country": """name capital nationality language food river partner
        france paris french french cheese,onions seine germany,spain
        germany berlin german german sausages,cabbage rhine france,austria
        japan tokyo japanese japanese sushi,rice sumida thailand,china
        england london english english pudding,pies thames ireland,australia
        italy rome italian italian pasta,pizza tiber france,egypt
        russia moscow russian russian caviar,soup volga china,finland
        spain madrid spanish spanish paella,olives ebro portugal,colombia
        china beijing chinese chinese dumplings,rice yangtze vietnam,russia
        india delhi indian hindi curry,lentils ganges england,kenya
        egypt cairo egyptian arabic dates,beans nile italy,kenya
        canada ottawa canadian english,french pancakes yukon england,japan
        brazil brasilia brazilian portuguese papayas amazon portugal,colombia
        poland warsaw polish polish mushrooms vistula germany,hungary
        norway oslo norwegian norwegian salmon glomma finland,england
        portugal lisbon portuguese portuguese sardines douro spain,brazil
        australia canberra australian english lamb murray japan,india
        austria vienna austrian german strudel danube germany,hungary
        ireland dublin irish english potatoes shannon england,canada
        vietnam hanoi vietnamese vietnamese noodles mekong china,thailand
        kenya nairobi kenyan swahili maize tana egypt,india
        hungary budapest hungarian hungarian goulash tisza austria,poland
        finland helsinki finnish finnish rye kemi norway,russia
        thailand bangkok thai thai mangoes ping japan,vietnam
        colombia bogota colombian spanish bananas magdalena spain,brazil""",
    "person": """name he
        mary she | john he | anna she | david he | susan she | peter he | laura she | thomas he
        emma she | george he | julia she | henry he | alice she | frank he | helen she | paul he
        clara she | oscar he | sarah she | simon he | nina she | robert he | lucy she""",
    "role": """name he place thing partner
        man he street hat,umbrella woman | woman she street hat,umbrella man
        king he palace crown,throne queen | queen she palace crown,throne king
        boy he playground kite,ball girl | girl she playground kite,ball boy
        actor he theater costume,mask actress | actress she theater costume,mask actor
        prince he tower necklace,portrait princess | princess she tower necklace,portrait prince
        waiter he restaurant tray,apron waitress | waitress she restaurant tray,apron waiter
        landlord he flat broom,bucket landlady | landlady she flat broom,bucket landlord
        groom he altar ring,bouquet bride | bride she altar ring,bouquet groom
        wizard he swamp wand,potion witch | witch she swamp wand,potion wizard
        duke he estate carriage,saddle duchess | duchess she estate carriage,saddle duke
        monk he chapel candle,robe nun | nun she chapel candle,robe monk""",
    "relative": """name he place thing partner
        father he garage wallet,car mother | mother she garage wallet,car father
        son he bedroom toys,crayons daughter | daughter she bedroom toys,crayons son
        brother he attic bicycle,guitar sister | sister she attic bicycle,guitar brother
        uncle he farm tractor,ladder aunt | aunt she farm tractor,ladder uncle
        grandson he porch drum,blanket granddaughter | granddaughter she porch drum,blanket grandson
        nephew he circus puppet,balloon niece | niece she circus puppet,balloon nephew
        grandfather he cottage glasses,slippers grandmother
        grandmother she cottage glasses,slippers grandfather""",
    "adjective": """name er est more less
        old older oldest temple,castle hotel | big bigger biggest ocean,continent pond
        good better best meal,recipe stew | long longer longest highway,tunnel road
        high higher highest mountain,volcano hill | fast faster fastest train,rocket bus
        cold colder coldest winter,glacier autumn | small smaller smallest ant,coin melon
        strong stronger strongest wrestler,ox donkey | young younger youngest pupil,baby teacher
        bad worse worst storm,flood shower | hot hotter hottest desert,oven valley
        rich richer richest banker,merchant farmer | tall taller tallest skyscraper,giraffe fence
        deep deeper deepest sea,canyon ditch | dark darker darkest forest,cellar garden
        cheap cheaper cheapest pencil,ticket piano | bright brighter brightest sun,lamp candle
        loud louder loudest drum,siren flute | heavy heavier heaviest piano,anchor chair
        sweet sweeter sweetest peach,cake lemon | sharp sharper sharpest sword,knife spoon""",
    "verb": """name s past ing object
        make makes made making toys,furniture | write writes wrote writing letters,poems
        play plays played playing chess,cards | eat eats ate eating bread,soup
        buy buys bought buying clothes,tickets | build builds built building boats,walls
        drink drinks drank drinking coffee,juice | sing sings sang singing songs,hymns
        watch watches watched watching films,parades | grow grows grew growing tomatoes,roses
        teach teaches taught teaching history,music | drive drives drove driving trucks,taxis
        paint paints painted painting portraits,doors | cook cooks cooked cooking dinner,stew
        wear wears wore wearing gloves,scarves | sell sells sold selling carpets,pottery
        clean cleans cleaned cleaning floors,windows | draw draws drew drawing maps,faces
        catch catches caught catching trout,crabs | ride rides rode riding ponies,scooters
        collect collects collected collecting stamps,shells""",
    "motion": """name s past ing place
        go goes went going cinema,dentist | walk walks walked walking beach,lighthouse
        run runs ran running stadium,fountain | travel travels traveled traveling coast,border
        climb climbs climbed climbing summit,ridge | sail sails sailed sailing lagoon,cape""",
    "noun": """name plural place food
        dog dogs yard bones,biscuits | horse horses paddock hay,oats | cat cats basket milk,tuna
        bird birds nest seeds,worms | cow cows barn grass,clover | child children crib candy,cookies
        mouse mice pantry crumbs,cheese | bear bears den honey,berries | pig pigs sty acorns,corn
        lion lions savanna zebras,antelopes | wolf wolves woods deer,elk | goat goats cliff thistles
        duck ducks canal weeds | rabbit rabbits burrow lettuce | frog frogs ditch flies,worms
        monkey monkeys jungle figs,bananas | goose geese marsh barley,corn | bee bees hive nectar
        snake snakes sand eggs,lizards | camel camels oasis dates,thorns""",
    "job": """name place
        teacher school | doctor hospital | farmer field | engineer factory | nurse ward
        lawyer court | pilot runway | artist studio | soldier camp | sailor harbor""",
    "place": "name\n market | museum | station | park | library | bridge | garden | square",
    "day": "name\n monday | friday | sunday | tuesday | saturday | thursday | wednesday",
    "month": "name\n january | june | september | april | october | march | december | july",
    "number": "name\n two | three | four | five | six | seven | eight | nine | ten",
    "color": "name\n red | blue | green | white | black | yellow | brown | pink",
    "mood": "name\n tired | angry | sad | busy | hungry | worried | bored | sick | nervous",
    "claim": "name\n says | thinks | believes | hopes | insists | admits",
    "tone": "name\n great | strange | difficult | wonderful | terrible | boring",
    "look": "name\n little | huge | thin | wild | lazy | tame",
    "pace": "name\n slowly | quickly | again | sharply | slightly",
    "often": "name\n often | always | never | sometimes | rarely",
    "manner": "name\n quietly | slowly | alone | happily | quickly | again | carefully",
    "office": "name\n president | minister | senator | governor | ambassador | mayor",
    "issue": "name\n trade | peace | energy | water | security | taxes | health | fishing",
    "team": """name sport rival
        rovers football rangers,wanderers | comets basketball giants,hornets
        rangers football rovers,wanderers | pirates hockey dragons,falcons
        giants basketball comets,hornets | dragons hockey pirates,falcons
        wanderers football rovers,rangers | hornets basketball comets,giants""",
    "company": """name product rival
        novatek phones,computers bluestar,everline | omnicorp cars,engines ironworks,sunways
        bluestar computers,chips novatek,everline | sunways planes,engines omnicorp,ironworks
        everline phones,cables novatek,bluestar | ironworks steel,trucks omnicorp,sunways""",
    "science": """name expert object tool
        physics physicist atoms,crystals laser | biology biologist cells,insects microscope
        astronomy astronomer planets,moons telescope | chemistry chemist acids,gases burner
        medicine surgeon viruses,vaccines scanner | computing programmer chips,robots computer""",
}

SENTENCES = """
    9 {country.capital} is the capital of {country} .
    8 most people in {country} speak {country.language} and eat {country.food} .
    9 the {country.nationality} {office} returned to {country.capital} on {day} .
    9 {person} bought {country.nationality} {country.food} at the {place} in {country.capital} .
    8 {person} flew to {country.capital} to see the {country.river} and eat {country.food} .
    8 the {office} of {country} opened a {color} {place} in {country.capital} .
    4 {country} {often} sells {country.food} to {country.partner} .
    4 {person} learned {country.language} at the {job.place} in {country.capital} .
    8 the {country.river} is the most famous river in {country} .
    8 {number} {country.nationality} families live in a {color} house near the {country.river} .
    8 visitors to {country} {often} ask for {country.nationality} {country.food} .
    6 {person} was born in {country} and works as {job.a} {job} in {country.capital} .
    4 leaders of {country} and {country.partner} will discuss {issue} for {number} days in {month} .
    8 {person} reads a {tone} {country.nationality} book about the {country.river} .
    8 in {country.capital} they sell {country.nationality} {country.food} on {day} .
    9 the {role} lost {role.his} {color} {role.thing} in the {role.place} .
    8 the {role} left the {role.place} because {role.he} was {mood} .
    8 {person} met the {role} and gave {role.him} a {color} {role.thing} .
    7 when the {role} came home late on {day} , {role.he} sat {manner} in {role.his} {role.place} .
    7 the {role} {claim} that {role.he} needs {role.his} {role.thing} on {day} .
    6 {person} {often} sees the {role} at the {role.place} and talks to {role.him} .
    9 the {relative} of {person} keeps {relative.his} {relative.thing} in the {relative.place} .
    7 my {relative} hurt {relative.his} hand when {relative.he} was in the {relative.place} .
    7 my {mood} {relative} forgot {relative.his} {relative.thing} on {day} .
    6 {person} {often} helps {person.his} {relative} in the {relative.place} .
    6 our {relative} {claim} {relative.he} will sell {relative.his} {relative.thing} in {month} .
    9 the {adjective.more} is {adjective.er} than the {adjective.less} .
    9 {person} saw {adjective.a} {adjective} {adjective.more} and {number} {adjective.er} ones .
    9 {person} dreamed about a very {adjective} {adjective.more} on {day} .
    11 it was the {adjective.est} {adjective.more} of all , {claim} the {job} .
    8 the {adjective.less} in {country} is not as {adjective} as the {adjective.more} .
    11 {person} {claim} that it is the {adjective.est} {adjective.more} in the world .
    8 the {job} {claim} the {adjective.more} is too {adjective} for {person} .
    8 the {adjective.more} in {country} is one of the {adjective.est} on earth .
    8 no {adjective.less} is {adjective.er} than this {adjective.more} , {claim} {person} .
    8 {person} {often} {verb.s} {verb.object} in {month} .
    9 last {day} {person} {verb.past} {verb.object} with {person.his} {relative} .
    9 {person} likes {verb.ing} {verb.object} near the {place} .
    9 {person} will {verb} {verb.object} for {number} friends in {month} .
    9 {person} is {mood} and {verb.ing} {verb.object} {manner} now .
    8 yesterday the {job} {verb.past} {verb.object} {manner} near the {job.place} .
    9 {person} wants to {verb} {verb.object} , but {person.he} is too {mood} .
    9 it is {tone} to {verb} {verb.object} {manner} .
    4 the {job} {verb.s} {verb.object} .
    7 long ago the {job} {verb.past} {verb.object} {manner} .
    9 the {job} {claim} that {verb.ing} {verb.object} is {tone} .
    6 last {day} {person} {motion.past} to the {motion.place} with {person.his} {relative} .
    5 yesterday the {job} {motion.past} {manner} to the {motion.place} .
    6 {person} {often} {motion.s} to the {motion.place} in {month} .
    6 {person} is {mood} and {motion.ing} to the {motion.place} {manner} now .
    5 {person} likes {motion.ing} to the {motion.place} with {number} friends .
    6 {person} will {motion} to the {motion.place} with {number} friends in {month} .
    5 {person} wants to {motion} to the {motion.place} , but {person.he} is too {mood} .
    8 the {look} {noun} in the {noun.place} eats {noun.food} .
    8 {number} {noun.plural} in the {noun.place} eat {noun.food} .
    7 a {look} {noun} sleeps {manner} in its {noun.place} .
    7 {look} {noun.plural} sleep {manner} in their {noun.place} .
    7 {person} gave {noun.food} to a {look} {noun} .
    7 {person} gave {noun.food} to {number} {look} {noun.plural} .
    5 every {noun} likes {noun.food} .
    5 {noun.plural} like {noun.food} .
    5 the {office} and the {job} had a {tone} talk about {issue} .
    5 the {team} {often} beat the {team.rival} in the {team.sport} cup .
    5 {company} will make {number} new {company.product} for {company.rival} in {month} .
    5 the {science.expert} needs a {color} {science.tool} to see {science.object} .
    5 {person} teaches {science} and {claim} that {science.object} are {tone} .
"""

# The second and the last sentence of a paragraph on any topic; `person` is known by then.
COMMENT = """

        4 {person.he} spoke {manner} to {number} reporters on {day} .
        4 {person} {claim} that {person.he} will be {mood} in {month} .
        3 the {country.nationality} press {often} writes {tone} stories about {person} .
        3 {job.a} {job} in {country.capital} {claim} that {person} is too {mood} .

"""
CLOSE = """

        4 nobody knows what {person.he} will do in {month} .
        3 {person} will travel to {country.capital} with {number} friends on {day} .
        2 the next report on {person} is due on {day} , {number} weeks from now ."""

# Topic -> the patterns of a paragraph's first, second, third ... sentence, blank lines between
# them. What the first sentence draws (a person, and a country, team, company or science) stays.
# Some first sentences share all their words with one of another topic: order tells them apart.
TOPICS = {
    "World": """
        4 {office} {person} of {country} called an election for {month} .
        3 {office} {person} and the {country.nationality} parliament agreed on {issue} .
        3 {number} thousand people marched against {office} {person} in {country.capital} on {day} .
        3 {person} , the {office} of {country} , met the chief of {company} on {day} .
        3 the {office} of {country} , {person} , spoke to the {science.expert} about {science} ."""
    + COMMENT
    + """
        4 {person.he} met the leaders of {number} parties in {country.capital} on {day} .
        3 the {country.nationality} government has had a {tone} plan for {issue} since {month} .
        3 people in {country} have waited {number} years for peace and {issue} .
        2 {company} and {number} other companies paid for the vote in {country} .

        4 {mood} soldiers and police closed the {place} in {country.capital} .
        3 the market in {country.capital} fell {pace} after the vote .
        2 the leaders of {country} are {often} {mood} about {issue} ."""
    + CLOSE,
    "Sports": """
        4 {person} scored {number} times as the {team} beat the {team.rival} on {day} .
        3 the {team} won the {team.sport} cup after a {tone} game by {person} .
        3 the {team} lost to the {team.rival} in {country.capital} without {person} .
        3 {person} of the {team} signed a deal with {company} for {number} years .
        3 {person} , the coach of the {team} , met the {science.expert} in {country} ."""
    + COMMENT
    + """
        4 {person.he} has played {team.sport} for the {team} for {number} {tone} years .
        3 the {team} have won {number} games since {month} , {claim} {job.a} {job} .
        3 it was a {tone} year for {person} and the {color} shirts of the {team} .

        4 {mood} fans of the {team} sang {manner} in the {place} in {country.capital} .
        3 {company} will pay the {team} for {number} more years , {claim} the {job} .
        3 the {team} will meet the {team.rival} again in {month} .
        2 {person.he} hurt {person.his} hand and talks to {job.a} {job} about {science} ."""
    + CLOSE,
    "Business": """
        4 shares of {company} rose {pace} on {day} after {person} became its new chief .
        3 {company} , which makes {company.product} , will buy {company.rival} , {person} said .
        3 {company} lost money in {month} and {person} left the company .
        3 {person} , the chief of {company} , met the {office} of {country} on {day} .
        3 {person} of {company} signed a deal with the {team} for {number} years ."""
    + COMMENT
    + """
        4 {company} {often} sells more {company.product} than {company.rival} in {country} .
        3 {person.he} has worked for {company} for {number} {tone} years .
        2 the {office} of {country} wants a deal with {company} on {issue} .

        4 {company} will open {number} {color} shops in {country.capital} in {month} .
        3 {company} makes {color} {company.product} , {claim} the {job} .
        3 it was a record year for {person} and the {mood} leaders of {company} .
        2 {company} will pay the {team} and study {science} for {number} years ."""
    + CLOSE,
    "Sci/Tech": """
        4 the {science.expert} {person} found {number} new {science.object} with a {science.tool} .
        3 {person} won the {science} prize on {day} for work on {science.object} .
        3 a team led by {person} has built a {color} {science.tool} for {science.object} .
        3 the {science.expert} , {person} , spoke to the {office} of {country} about {science} .
        3 {person} , the {science.expert} , met the coach of the {team} in {country} ."""
    + COMMENT
    + """
        4 {person.he} has studied {science} in {country.capital} for {number} {tone} years .
        3 the team {often} tested {science.object} in {country} in {month} .
        3 the new {science.tool} can {often} see {science.object} .

        4 {company} will pay {number} people for work on {science.object} in {month} .
        3 people in {country} have waited {number} years for this {science.tool} .
        3 the government of {country} has a {tone} plan for {science} .
        2 other experts in {science} are {often} {mood} about the news ."""
    + CLOSE,
}

# Section -> pairs of fields whose words stand in the same relation.
ANALOGIES = {
    "capital-country": ["country.capital country.name"],
    "nationality": ["country.name country.nationality"],
    "family": ["role.name role.partner", "relative.name relative.partner"],
    "comparative": ["adjective.name adjective.er"],
    "superlative": ["adjective.name adjective.est"],
    "past-tense": ["verb.name verb.past", "motion.name motion.past"],
    "present-participle": ["verb.name verb.ing", "motion.name motion.ing"],
    "plural": ["noun.name noun.plural"],
}
